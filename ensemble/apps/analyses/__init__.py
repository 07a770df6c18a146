"""Five analyses of mechanical systems under random input, after Gaurav and Wojtkiewicz (2011)."""

from ensemble.apps.analyses.convolution import convolution_response
from ensemble.apps.analyses.expectation import gauss_hermite
from ensemble.apps.analyses.frequency import ar1_load, ar1_spectrum, frequency_response
from ensemble.apps.analyses.oscillator import OscillatorResponse, oscillator
from ensemble.apps.analyses.static import StaticResponse, static_beam

__all__ = [
    "OscillatorResponse",
    "StaticResponse",
    "ar1_load",
    "ar1_spectrum",
    "convolution_response",
    "frequency_response",
    "gauss_hermite",
    "oscillator",
    "static_beam",
]
