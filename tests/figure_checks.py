"""What a person would complain about in a figure, as assertions: labels that touch, a legend on the data, no unit."""

import itertools


def no_overlap(texts, slack=0.5):
    """The drawn boxes of `texts` (those that say something) do not touch; `slack` pixels are forgiven."""
    boxes = [(t.get_text(), t.get_window_extent()) for t in texts if t.get_text() and t.get_visible()]
    for (one, a), (other, b) in itertools.combinations(boxes, 2):
        apart = a.x1 <= b.x0 + slack or b.x1 <= a.x0 + slack or a.y1 <= b.y0 + slack or b.y1 <= a.y0 + slack
        assert apart, f"{one!r} touches {other!r}"


def readable(figure):
    """Tick labels are apart, every labelled axis has its unit, legends and notes lie below all panels."""
    figure.draw_without_rendering()
    for ax in figure.axes:
        if not any(t.get_rotation() for t in ax.get_xticklabels()):
            no_overlap(_inside(ax.get_xticklabels(), ax, "x"))
        no_overlap(_inside(ax.get_yticklabels(), ax, "y"))
        for label in (ax.get_xlabel(), ax.get_ylabel()):
            assert not label or "(" in label, f"no unit in {label!r}"
    lowest = min(ax.get_tightbbox().y0 for ax in figure.axes)
    for below in (*figure.legends, *figure.texts):
        box = below.get_window_extent()
        assert box.y1 <= lowest + 1, "a legend or a note lies on the panels"
    notes = [*figure.legends, *figure.texts]
    no_overlap_boxes([n.get_window_extent() for n in notes])
    assert all(n.get_window_extent().width <= figure.bbox.width + 1 for n in figure.legends), "a legend is too wide"


def no_overlap_boxes(boxes):
    """Boxes below one another."""
    for a, b in itertools.combinations(boxes, 2):
        assert a.y1 <= b.y0 + 1 or b.y1 <= a.y0 + 1 or a.x1 <= b.x0 or b.x1 <= a.x0


def _inside(labels, ax, side):
    """Labels within the view: matplotlib keeps those outside, undrawn."""
    low, high = sorted(ax.get_xlim() if side == "x" else ax.get_ylim())
    place = 0 if side == "x" else 1
    return [t for t in labels if low <= t.get_position()[place] <= high]


def legend_texts(figure):
    return [t.get_text() for legend in figure.legends for t in legend.texts]
