package report

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"
)

func TestTable(t *testing.T) {
	table := Table{Header: []string{"server", "ms"}, Left: 1}
	table.Add("floor", "1.00")
	table.Add("größer", "12")
	var b strings.Builder
	if _, err := table.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	want := `| server |   ms |
| ------ | ---: |
| floor  | 1.00 |
| größer |   12 |
`
	if b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}

func TestChart_IsXML(t *testing.T) {
	c := Chart{Title: "a < b", X: "x", Y: "y", Series: []Series{
		{Name: "one", Points: []Point{{1, 0.5}, {1000, 20}}},
		{Name: "nothing"},
	}}
	var b strings.Builder
	if _, err := c.WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	lines := 0
	for d := xml.NewDecoder(strings.NewReader(b.String())); ; {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if start, ok := token.(xml.StartElement); ok && start.Name.Local == "polyline" {
			lines++
		}
	}
	if lines != 2 {
		t.Errorf("%d lines, want 2", lines)
	}
}

// Ten times as much is equally far everywhere on an axis.
func TestAxis_IsLogarithmic(t *testing.T) {
	a := axis{from: 0, to: 300}
	a.include(2)
	a.include(700)
	for v, want := range map[float64]float64{1: 0, 10: 100, 100: 200, 1000: 300} {
		if got := a.position(v); got < want-0.01 || got > want+0.01 {
			t.Errorf("%g is at %g, want %g", v, got, want)
		}
	}
}
