"""The kernel's configurations and the chip, and how a test takes one of them whatever would be chosen."""

import dataclasses
import functools

import torch

import submission

EMULATED = "emulated" in torch.cuda.get_device_name()
WHOLE = [shape for shape in submission.shapes() if shape[3] == 1]  # a tile's K is one MMA's
SHARED = [shape for shape in submission.shapes() if shape[3] > 1]  # of one product
EVERY = [(shape, products) for products in submission.PRODUCTS for shape in submission.shapes(products)]


def label(shape):
    """What pytest calls a shape."""
    return "{} tokens, {}-SM, {} per SM, K by {}".format(*shape)


def label_with_products(shape, products):
    return f"{label(shape)}, {'dual' if products == 2 else 'single'}"


def force(monkeypatch, *shapes):
    """Let `configure` choose among these shapes only, with a cache of its own."""
    monkeypatch.setattr(submission, "shapes", lambda products=1: list(shapes))
    monkeypatch.setattr(submission, "configure", functools.lru_cache(submission.configure.__wrapped__))


def set_chip(monkeypatch, sms=None, schedules=None, share_sms=False):
    """From now on as many SMs for `solve` as said, and these schedules for the emulator; None leaves them as they are.

    share_sms: the emulated chip has no more SMs either, so that launches meet on them.
    """
    if sms is not None:
        monkeypatch.setattr(submission, "sm_count", lambda device: sms)
    if not EMULATED:
        return
    from emulator.execution.device import Device

    device = Device.current()
    if schedules is not None:
        monkeypatch.setattr(device, "schedules", tuple(schedules))
    if share_sms:
        monkeypatch.setattr(device, "properties", dataclasses.replace(device.properties, sm_count=sms))
