"""A report of a study: one page of HTML with its inputs, statistics, pictures, failures and cost."""
