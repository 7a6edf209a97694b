"""The kernel's configurations and the chip, and how a test forces one of them."""

import dataclasses
import functools

import torch

import submission

EMULATED = "emulated" in torch.cuda.get_device_name()
SINGLE = submission.legal_configurations(1)  # configurations of one product
EVERY = [(shape, products) for products in submission.PRODUCTS for shape in submission.legal_configurations(products)]
PROMISED = {"operands_ready": True, "output_free": True}  # all promises that a caller of solve can make


def label(shape):
    """pytest's name for a configuration."""
    return "{} tokens, {}-SM, {} per SM, {} side by side".format(*shape)


def label_with_products(shape, products):
    return f"{label(shape)}, {'dual' if products == 2 else 'single'}"


def solver(*shapes, sms=None):
    """A `submission.solve` with these configurations only, planned for `sms` SMs (None: all of the device)."""
    return functools.partial(submission.solve, configurations=shapes, sms=sms)


def set_chip(monkeypatch, schedules=None, sms=None):
    """Give the emulated chip these schedules and `sms` SMs, which launches share; None leaves the present value.

    A solver plans for its own number of SMs.
    """
    if not EMULATED:
        return
    from nogpu.execution.device import Device

    device = Device.current()
    if schedules is not None:
        monkeypatch.setattr(device, "schedules", tuple(schedules))
    if sms is not None:
        monkeypatch.setattr(device, "properties", dataclasses.replace(device.properties, sm_count=sms))
