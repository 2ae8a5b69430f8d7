package report

import (
	"encoding/xml"
	"fmt"
	"io"
	"math"
	"strings"
)

// Chart is a plot of lines over two logarithmic axes, on which a cost in proportion to x is a straight line with the slope
// of the diagonal and a cost that does not depend on x is level.
type Chart struct {
	Title, X, Y string
	Series      []Series
}

// Series is a line with its name.
type Series struct {
	Name   string
	Points []Point
}

// Point is a place on a line; both values are above zero.
type Point struct{ X, Y float64 }

// The layout, in SVG user units.
const (
	chartWidth, chartHeight = 720, 420
	left, right             = 80, 150
	top, bottom             = 40, 55
)

var colors = []string{"#7f7f7f", "#1f77b4", "#d62728", "#ff7f0e", "#2ca02c", "#9467bd"}

// WriteTo implements io.WriterTo; it writes a self-contained SVG file.
func (c Chart) WriteTo(w io.Writer) (int64, error) {
	x, y := axis{from: left, to: chartWidth - right}, axis{from: chartHeight - bottom, to: top}
	for _, s := range c.Series {
		for _, p := range s.Points {
			x.include(p.X)
			y.include(p.Y)
		}
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n", chartWidth,
		chartHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", chartWidth, chartHeight)
	text(&b, chartWidth/2, 22, "middle", ` font-size="15"`, c.Title)
	text(&b, (left+chartWidth-right)/2, chartHeight-12, "middle", "", c.X)
	text(&b, 18, (top+chartHeight-bottom)/2, "middle", fmt.Sprintf(` transform="rotate(-90 18 %d)"`, (top+chartHeight-bottom)/2), c.Y)
	for _, v := range x.decades() {
		line(&b, x.position(v), y.from, x.position(v), y.to)
		text(&b, x.position(v), y.from+18, "middle", "", label(v))
	}
	for _, v := range y.decades() {
		line(&b, x.from, y.position(v), x.to, y.position(v))
		text(&b, x.from-8, y.position(v)+4, "end", "", label(v))
	}
	for i, s := range c.Series {
		color := colors[i%len(colors)]
		var path []string
		for _, p := range s.Points {
			path = append(path, fmt.Sprintf("%.1f,%.1f", x.position(p.X), y.position(p.Y)))
			fmt.Fprintf(&b, `<circle cx="%.1f" cy="%.1f" r="3" fill="%s"/>`+"\n", x.position(p.X), y.position(p.Y), color)
		}
		fmt.Fprintf(&b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="2"/>`+"\n", strings.Join(path, " "), color)
		position := float64(top + 10 + 20*i)
		fmt.Fprintf(&b, `<rect x="%d" y="%.0f" width="12" height="12" fill="%s"/>`+"\n", chartWidth-right+16, position, color)
		text(&b, chartWidth-right+34, position+10, "start", "", s.Name)
	}
	b.WriteString("</svg>\n")
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// axis maps values to places, logarithmically, from one power of ten to another.
type axis struct {
	from, to float64
	low, top float64 // exponents
	used     bool
}

func (a *axis) include(v float64) {
	low, top := math.Floor(math.Log10(v)), math.Ceil(math.Log10(v))
	if !a.used {
		a.low, a.top, a.used = low, max(top, low+1), true
	}
	a.low, a.top = min(a.low, low), max(a.top, top)
}

func (a *axis) position(v float64) float64 {
	if !a.used {
		return a.from
	}
	return a.from + (a.to-a.from)*(math.Log10(v)-a.low)/(a.top-a.low)
}

func (a *axis) decades() (out []float64) {
	for e := a.low; a.used && e <= a.top; e++ {
		out = append(out, math.Pow(10, e))
	}
	return out
}

func label(v float64) string {
	switch {
	case v >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case v >= 1e3:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%g", v)
}

func line(b *strings.Builder, x1, y1, x2, y2 float64) {
	fmt.Fprintf(b, `<line x1="%.1f" y1="%.1f" x2="%.1f" y2="%.1f" stroke="#dddddd"/>`+"\n", x1, y1, x2, y2)
}

func text[T int | float64](b *strings.Builder, x, y T, anchor, attributes, s string) {
	fmt.Fprintf(b, `<text x="%v" y="%v" text-anchor="%s"%s>`, x, y, anchor, attributes)
	_ = xml.EscapeText(b, []byte(s))
	b.WriteString("</text>\n")
}
