package report

import (
	"io"
	"strings"
	"unicode/utf8"
)

// Table is a Markdown table that is readable as plain text too. The first Left columns are aligned to the left, the others
// to the right.
type Table struct {
	Header []string
	Left   int
	rows   [][]string
}

// Add adds a row, with as many cells as the header.
func (t *Table) Add(cells ...string) { t.rows = append(t.rows, cells) }

// Keep leaves out the columns that keep refuses.
func (t *Table) Keep(keep func(column int) bool) {
	leftColumns := 0
	for i := range min(t.Left, len(t.Header)) {
		if keep(i) {
			leftColumns++
		}
	}
	filter := func(cells []string) (out []string) {
		for i, cell := range cells {
			if keep(i) {
				out = append(out, cell)
			}
		}
		return out
	}
	t.Header, t.Left = filter(t.Header), leftColumns
	for i, row := range t.rows {
		t.rows[i] = filter(row)
	}
}

// WriteTo implements io.WriterTo.
func (t *Table) WriteTo(w io.Writer) (int64, error) {
	width := make([]int, len(t.Header))
	for _, row := range append([][]string{t.Header}, t.rows...) {
		for i, cell := range row {
			width[i] = max(width[i], utf8.RuneCountInString(cell), 2)
		}
	}
	var b strings.Builder
	t.write(&b, t.Header, width)
	for i, n := range width {
		if i < t.Left {
			b.WriteString("| " + strings.Repeat("-", n) + " ")
		} else {
			b.WriteString("| " + strings.Repeat("-", n-1) + ": ")
		}
	}
	b.WriteString("|\n")
	for _, row := range t.rows {
		t.write(&b, row, width)
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

func (t *Table) write(b *strings.Builder, row []string, width []int) {
	for i, cell := range row {
		pad := strings.Repeat(" ", width[i]-utf8.RuneCountInString(cell))
		if i < t.Left {
			b.WriteString("| " + cell + pad + " ")
		} else {
			b.WriteString("| " + pad + cell + " ")
		}
	}
	b.WriteString("|\n")
}
