"""The events of `train`, as lines and a bar."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from nextword.core.io import format_number
from nextword.progress.display import ProgressDisplay

if TYPE_CHECKING:
    from nextword.training.events import Event


class TrainingDisplay(ProgressDisplay):
    """One progress bar with the latest numbers, and a line per validation."""

    def __call__(self, event: Event) -> None:
        if self.is_quiet:
            return
        values = event.values
        show: dict[str, Callable[[Event], None]] = {
            "begin": self._show_begin,
            "step": self.show_step,
            "valid": self._show_validation,
        }
        if "ngrams" in values:
            self._show_ngrams(event)
        elif "doing" in values:
            self.update(values["doing"], values["fraction"], 1.0)
        elif event.kind in show:
            show[event.kind](event)

    def _show_begin(self, event: Event) -> None:
        values = event.values
        self.total = values.get("steps") or None
        facts = [f"{values['tokens']:,} tokens"]
        if "parameters" in values:
            epochs = values["steps"] / values["per_epoch"]
            facts = [f"{values['parameters']:,} parameters", *facts]
            facts += [f"{values['steps']:,} steps ({epochs:.1f} epochs)", values["device"]]
        self.print(f"[bold]{event.phase}[/]: {' · '.join(facts)}")
        self.warn(values.get("notes", ()), indent="  ")

    def _show_validation(self, event: Event) -> None:
        values = event.values
        is_perplexity = "perplexity" in values
        loss = (
            f"perplexity {format_number(values['perplexity'], 2)}" if is_perplexity else f"loss {values['valid']:.4f}"
        )
        bits = f" · {values['valid_bits_per_byte']:.3f} bits/byte" if "valid_bits_per_byte" in values else ""
        mark = " [green]best[/]" if values["best"] else ""
        self.print(
            f"  step {event.step:,} · epoch {event.epoch:.1f} · valid {loss}{bits} · {event.seconds:,.0f} s{mark}"
        )

    def _show_ngrams(self, event: Event) -> None:
        """The number of n-grams by order, interpolation weights, and notes of the estimator."""
        values = event.values
        self.print("  " + " · ".join(f"{n:,} {k}-grams" for k, n in enumerate(values["ngrams"], 1)))
        if "weights" in values:
            weights = ", ".join(f"{weight:.3f}" for weight in values["weights"])
            self.print(f"  weights on the validation text: {weights}")
        self.warn(values.get("notes", ()), indent="  ")
