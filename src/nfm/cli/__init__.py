"""The command line: one file a verb, imported when it is called, so that ``nfm --help`` costs nothing."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from nfm.cli.heap import keep_freed_memory

VERBS = {
    "demo": "train three schemes on real digits and see what noise does to them (about two minutes)",
    "train": "train a network by a recipe or by flags",
    "evaluate": "measure a network under noise, attacks and corruptions",
    "certify": "certify l2 radii of a network under Gaussian smoothing",
    "compare": "put measured runs in one table, with paired tests",
    "plot": "draw measured runs as PNG, SVG or PDF",
    "report": "write measured runs as one page to look at in a browser",
    "tune": "find noise levels, alpha and sites on validation data, clean against robust",
    "reproduce": "make a table or figure of the paper, the published numbers beside ours",
    "theory": "measure what the paper's theory says of trained networks",
    "check": "read a recipe and list all its errors at once",
    "copy": "hand out a recipe to change",
    "list": "list schemes, models, data, recipes",
    "show": "show a model: stages, shapes, parameters, sites",
    "predict": "print the classes and probabilities of images",
    "doctor": "tell versions, devices, the kernel in use, and the traps of this machine",
}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the first word; each verb brings its own."""
    top = argparse.ArgumentParser(
        prog="nfm", description="Noisy Feature Mixup inside any PyTorch network.",
        epilog="verbs:\n" + "\n".join(f"  {name:<10}{about}" for name, about in VERBS.items())
        + "\n\n`nfm VERB --help` tells more of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )  # fmt: skip
    top.add_argument("--version", action="store_true", help="print the version and stop")
    top.add_argument("--debug", action="store_true", help="show the traceback of an error")
    top.add_argument("verb", nargs="?", metavar="VERB", help="what to do")
    top.add_argument("rest", nargs=argparse.REMAINDER, metavar="...", help="its arguments")
    return top


def command() -> int:
    """Run one verb in a process of its own."""
    keep_freed_memory()
    return main()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one verb; return the exit code: 0, or that of the error (2 usage, 3 data, 4 numbers, 5 machine)."""
    top = parser()
    given = top.parse_args(arguments)
    if given.version:
        from importlib.metadata import version

        print(f"nfm {version('noisy-feature-mixup')}")
        return 0
    if given.verb is None:
        top.print_help()
        return 0
    if given.verb not in VERBS:
        from nfm.errors import did_you_mean

        top.error(f"no verb {given.verb!r}; verbs: {', '.join(VERBS)}{did_you_mean(given.verb, VERBS)}")
    return _run(given.verb, given.rest, debug=given.debug)


def _run(verb: str, rest: Sequence[str], *, debug: bool) -> int:
    from nfm.errors import NFMError, did_you_mean

    module = import_module(f"nfm.cli.{verb}_verb")
    options = argparse.ArgumentParser(
        prog=f"nfm {verb}", description=VERBS[verb], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(options)
    options.add_argument("--debug", action="store_true", help="show the traceback of an error")
    given, unknown = options.parse_known_args(rest)
    if unknown:
        flag = unknown[0].split("=")[0]
        known = [name for action in options._actions for name in action.option_strings]
        options.error(f"unrecognized arguments: {' '.join(unknown)}{did_you_mean(flag, known)}")
    try:
        module.run(given)
    except NFMError as error:
        if debug or given.debug:
            raise
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:  # a run under way saves first, and raises Stopped
        print("error: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe went away; there is nobody to tell
        sys.stderr.close()
        return 0
    return 0
