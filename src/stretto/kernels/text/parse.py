"""Parsers of delimited and LIBSVM text: the compiled loops behind the readers.

Each kernel scans a buffer of whole lines (the last byte is a newline, which ends every inner scan) and fills flat
arrays. A problem that it cannot handle becomes a row of `notes`, and it goes on with the next line; the caller handles
the notes:

    notes[k] = (code, entry, start, end, line)    buf[start:end] is the text concerned, `line` counts from 0 in this
    buffer

SLOW_* notes mark numbers whose nearest float needs more than one 64-bit operation; the entry is in place and the
caller overwrites it with Python's own conversion. All other codes mean that the line was dropped. A kernel returns
early, at a line boundary, when an output or the notes are full; the caller empties them and calls again from there.
"""

# ruff: noqa: PLR1714, SIM109  (chains of comparisons compile to branches; membership tests build tuples)

from __future__ import annotations

import numpy as np

from stretto.kernels.core.compile import inner, kernel

# Codes of notes.
SLOW_VALUE, SLOW_LABEL = 1, 2
FEW_FIELDS, MANY_FIELDS, BAD_ID, BAD_VALUE, BAD_LABEL, BAD_INDEX, BAD_QUOTE = 10, 11, 12, 13, 14, 15, 16
FULL = 20  # never in a note: an output was full in the middle of a line

NEWLINE, RETURN, SPACE, TAB, QUOTE, HASH, PERCENT, COLON = 10, 13, 32, 9, 34, 35, 37, 58

POWERS = 10.0 ** np.arange(23)  # all exact in float64
LARGEST = 3.4028234e38
SMALLEST = 1.1754944e-38  # smaller float32 numbers lose bits: left to the slow conversion
EXACT = 2**53

FINE, SLOW, BAD = 0, 1, 2


@inner
def digits_at(buf, p, mantissa):
    """Append the decimal digits at `p` to `mantissa`; return (mantissa, end of the digits)."""
    while True:
        d = np.uint8(buf[p] - 48)
        if d > 9:
            return mantissa, p
        mantissa = mantissa * np.uint64(10) + np.uint64(d)
        p += 1


@inner
def number(buf, p, single):
    """Read a decimal number at `p`; return (value, FINE | SLOW | BAD, end of the number).

    FINE is the float64 nearest to the text, or, with `single`, a float64 that rounds to the nearest float32.
    """
    negative = buf[p] == 45
    if negative or buf[p] == 43:
        p += 1
    first = p
    mantissa, p = digits_at(buf, p, np.uint64(0))
    whole = p - first
    kept = 0 if mantissa == 0 and whole < 20 else whole  # significant digits; 19 always fit in 64 bits
    c = buf[p]
    if c != 46 and c != 101 and c != 69 and 0 < kept < 9:  # a small integer, the most common case
        value = np.float64(np.int64(mantissa))
        if mantissa <= 16777216 or not single:
            return (-value if negative else value), FINE, p
    scale = 0
    if c == 46:
        first = p + 1
        mantissa, p = digits_at(buf, first, mantissa)
        scale = first - p
        whole += p - first
        kept += p - first
    if whole == 0:
        return 0.0, BAD, p
    if buf[p] == 101 or buf[p] == 69:  # e, E
        down = buf[p + 1] == 45
        first = p + 2 if down or buf[p + 1] == 43 else p + 1
        power, p = digits_at(buf, first, np.uint64(0))
        if p == first:
            return 0.0, BAD, p
        if p - first > 4:
            return 0.0, SLOW, p
        scale += -np.int64(power) if down else np.int64(power)
    if kept > 19 or scale < -22 or scale > 22:
        return 0.0, SLOW, p
    value = np.float64(mantissa)
    if scale < 0:
        value = value / POWERS[-scale]
    elif scale > 0:
        value = value * POWERS[scale]
    state = FINE
    if single:
        # Rounding twice is wrong only next to the middle between two float32 numbers, where the lower 29 bits of the
        # 64-bit pattern are close to one half.
        near = (np.float64(value).view(np.int64) & 0x1FFFFFFF) - 0x10000000
        if mantissa != 0 and (-4 < near < 4 or value > LARGEST or value < SMALLEST):
            state = SLOW
    elif mantissa > EXACT:
        state = SLOW
    return (-value if negative else value), state, p


@inner
def end_of_line(buf, p):
    """Return the position of the newline at or after `p`."""
    while buf[p] != NEWLINE:
        p += 1
    return p


@inner
def ends_token(c):
    return c == SPACE or c == NEWLINE or c == TAB or c == RETURN or c == HASH


@inner
def note(notes, m, code, entry, start, end, line):
    notes[m, 0] = code
    notes[m, 1] = entry
    notes[m, 2] = start
    notes[m, 3] = end
    notes[m, 4] = line


@inner
def token_end(buf, p, s1, s2, spaces):
    """Return the end of the field that contains `p`: its separator or the newline."""
    while True:
        c = buf[p]
        if c == NEWLINE or (spaces and (c == SPACE or c == TAB)):
            return p
        if not spaces and c == s1 and (s2 == 0 or buf[p + 1] == s2):
            return p
        p += 1


@inner
def after_field(buf, p, spaces):
    """Return where the text after a field begins: skips blanks, and carriage returns at the end of the line."""
    while buf[p] == SPACE or (spaces and buf[p] == TAB):
        p += 1
    if buf[p] == RETURN:
        q = p
        while buf[q] == RETURN or buf[q] == SPACE or (spaces and buf[q] == TAB):
            q += 1
        if buf[q] == NEWLINE:
            return q
    return p


@inner
def rest_of_line(buf, p, s1, s2, spaces):
    """Count the fields from `p`, where one begins, to the end of the line; return (fields, end of the line).

    0 fields if a quoted field does not end where the next begins.
    """
    n = 1
    while True:
        while buf[p] == SPACE or (spaces and buf[p] == TAB):
            p += 1
        if buf[p] == QUOTE:
            p += 1
            while buf[p] != NEWLINE and (buf[p] != QUOTE or buf[p + 1] == QUOTE):
                p += 2 if buf[p] == QUOTE else 1
            if buf[p] == NEWLINE:
                return 0, p
            first = p + 1
            p = after_field(buf, first, spaces)
            if buf[p] != NEWLINE and (p == first if spaces else token_end(buf, p, s1, s2, spaces) != p):
                return 0, p
        else:
            p = token_end(buf, p, s1, s2, spaces)
        if spaces:
            p = after_field(buf, p, spaces)
        if buf[p] == NEWLINE:
            return n, p
        if not spaces:
            p += 1 if s2 == 0 else 2
        n += 1


@kernel
def triples(
    buf,
    p,
    end,
    s1,
    s2,
    spaces,
    at_row,
    at_col,
    at_val,
    row_text,
    col_text,
    width,
    rows,
    cols,
    row_len,
    col_len,
    values,
    lines,
    notes,
):
    """Parse delimited lines to row, column and value.

    s1, s2 : the separator's bytes (s2 = 0 for one byte)
    spaces : any run of blanks and tabs separates
    at_row, at_col, at_val : which fields to take (at_val = -1: every value is 1)
    row_text, col_text : take the id as text: `rows` gets its start in `buf`, `row_len` its length; else an integer
    width : how many fields a line has, another number being an error; 0 for any
    rows, cols (cap,) int64
    row_len, col_len (cap,) int32, unused unless text
    values (cap,) float32
    lines (cap,) int32
    Returns (entries, lines read, notes, where it stopped).
    """
    n = 0
    m = 0
    line = 0
    cap = len(values)
    last = max(at_row, at_col, at_val)
    while p < end:
        if n == cap or m + 2 > len(notes):
            break
        begin = p
        q = p
        while buf[q] == SPACE or buf[q] == TAB or buf[q] == RETURN:
            q += 1
        while buf[p] == SPACE or (spaces and buf[p] == TAB):
            p += 1
        c = buf[p]
        if buf[q] == NEWLINE or ((c == HASH or c == PERCENT) and not (row_text or col_text)):
            p = end_of_line(buf, q) + 1
            line += 1
            continue
        field = 0
        code = 0
        slow = False
        start = p
        value_start = p
        value_end = p
        if at_val < 0:
            values[n] = 1.0
        while True:
            while buf[p] == SPACE:
                p += 1
            quoted = buf[p] == QUOTE
            if quoted:
                p += 1
            start = p
            if field == at_row or field == at_col:
                text = row_text if field == at_row else col_text
                if text:
                    if quoted:
                        while buf[p] != QUOTE and buf[p] != NEWLINE:
                            p += 1
                        stop = p
                    else:
                        p = token_end(buf, p, s1, s2, spaces)
                        stop = p
                        while stop > start and (
                            buf[stop - 1] == SPACE or (buf[stop - 1] == RETURN and buf[p] == NEWLINE)
                        ):
                            stop -= 1
                    if stop == start:
                        code = FEW_FIELDS if buf[p] == NEWLINE else BAD_ID
                        break
                    if field == at_row:
                        rows[n] = start
                        row_len[n] = stop - start
                    else:
                        cols[n] = start
                        col_len[n] = stop - start
                else:
                    negative = buf[p] == 45
                    if negative:
                        p += 1
                    first = p
                    size, p = digits_at(buf, p, np.uint64(0))
                    x = np.int64(size)
                    # "007" and "-0" are text ids: they must not become the ids 7 and 0
                    if p == first or p - first > 18 or (buf[first] == 48 and (negative or p - first > 1)):
                        code = BAD_ID
                        break
                    if negative:
                        x = -x
                    if field == at_row:
                        rows[n] = x
                    else:
                        cols[n] = x
            elif field == at_val:
                v, state, p = number(buf, p, True)
                if state == BAD:
                    code = BAD_VALUE
                    break
                slow = state == SLOW
                value_start = start
                value_end = p
                values[n] = v
            elif quoted:
                while buf[p] != QUOTE and buf[p] != NEWLINE:
                    p += 1
            else:
                p = token_end(buf, p, s1, s2, spaces)
            if quoted:
                if buf[p] != QUOTE or buf[p + 1] == QUOTE:
                    code = BAD_QUOTE
                    break
                p += 1
            blank = p
            p = after_field(buf, p, spaces)
            c = buf[p]
            if c == NEWLINE:
                if field < last or field + 1 < width:
                    code = FEW_FIELDS
                break
            if spaces:
                found = p > blank
            else:
                found = c == s1 and (s2 == 0 or buf[p + 1] == s2)
                if found:
                    p += 1 if s2 == 0 else 2
            if not found:
                code = BAD_VALUE if field == at_val else BAD_ID
                break
            if field == last:
                if width > 0:
                    more, p = rest_of_line(buf, p, s1, s2, spaces)
                    if more == 0:
                        code = BAD_QUOTE
                    elif field + 1 + more != width:
                        code = MANY_FIELDS if field + 1 + more > width else FEW_FIELDS
                else:
                    p = end_of_line(buf, p)
                break
            field += 1
        if code != 0:
            stop = token_end(buf, start, s1, s2, spaces)
            if code == FEW_FIELDS or code == MANY_FIELDS or code == BAD_QUOTE:
                start = begin
                stop = end_of_line(buf, begin)
            elif buf[stop] == NEWLINE and (field < last or stop == start):
                code = FEW_FIELDS
                start = begin
            p = end_of_line(buf, start)
            note(notes, m, code, n, start, stop, line)
            m += 1
        else:
            if slow:
                note(notes, m, SLOW_VALUE, n, value_start, value_end, line)
                m += 1
            lines[n] = line
            n += 1
        p += 1
        line += 1
    return n, line, m, p


@kernel
def svmlight(buf, p, end, row, rows, cols, values, labels, lines, notes):
    """Parse `label [qid:n] index:value ... [# comment]` lines to entries.

    rows (cap,) int32, counted from `row`; cols (cap,) int64 as written; values (cap,) float32
    labels (rows cap,) float64 and lines (rows cap,) int32, one per row
    Returns (entries, rows, lines read, notes, where it stopped). A line that does not fit is left for the next call; if
    no line was read, the outputs are too small for one line.
    """
    n = 0
    r = 0
    m = 0
    line = 0
    while p < end:
        if r == len(labels) or m + 2 > len(notes):
            break
        begin = p
        begin_value = p
        first, first_note = n, m
        code = 0
        while buf[p] == SPACE or buf[p] == TAB or buf[p] == RETURN:
            p += 1
        if buf[p] == NEWLINE or buf[p] == HASH:
            p = end_of_line(buf, p) + 1
            line += 1
            continue
        start = p
        v, state, p = number(buf, p, False)
        if state == BAD or not ends_token(buf[p]):
            code = BAD_LABEL
        else:
            labels[r] = v
            if state == SLOW:
                note(notes, m, SLOW_LABEL, r, start, p, line)
                m += 1
        while code == 0:
            while buf[p] == SPACE or buf[p] == TAB or buf[p] == RETURN:
                p += 1
            if buf[p] == NEWLINE or buf[p] == HASH:
                break
            if n == len(values) or m + 2 > len(notes):
                code = FULL
                break
            start = p
            x, p = digits_at(buf, p, np.uint64(0))
            if p == start and buf[p] == 113 and buf[p + 1] == 105 and buf[p + 2] == 100 and buf[p + 3] == COLON:  # qid:
                while buf[p] != SPACE and buf[p] != TAB and buf[p] != NEWLINE:
                    p += 1
                continue
            if p == start or p - start > 18 or buf[p] != COLON:
                code = BAD_INDEX
                break
            p += 1
            begin_value = p
            v, state, p = number(buf, p, True)
            if state == BAD or not ends_token(buf[p]):
                code = BAD_VALUE
                break
            if state == SLOW:
                note(notes, m, SLOW_VALUE, n, begin_value, p, line)
                m += 1
            rows[n] = row + r
            cols[n] = np.int64(x)
            values[n] = v
            n += 1
        if code == FULL:
            n, m, p = first, first_note, begin
            break
        if code != 0:
            n, m = first, first_note
            if code == BAD_VALUE:
                start = begin_value
            q = start
            while buf[q] != SPACE and buf[q] != TAB and buf[q] != NEWLINE and buf[q] != RETURN:
                q += 1
            note(notes, m, code, r, start, q, line)
            m += 1
        else:
            lines[r] = line
            r += 1
        p = end_of_line(buf, p) + 1
        line += 1
    return n, r, line, m, p
