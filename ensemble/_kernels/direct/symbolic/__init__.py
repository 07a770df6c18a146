"""What elimination makes of a graph, without numbers: orders, fill, supernodes, and schedules of a device."""
