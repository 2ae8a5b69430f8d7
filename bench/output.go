package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"tributary/bench/engine"
	"tributary/bench/report"
)

// outcome is all that a run has found.
type outcome struct {
	results []result
	columns []string // of the table; none are all
}

// columns are those that a table may have.
var columns = []string{
	"scenario", "mode", "server", "resources", "streams", "CPU", "spread", "floor", "tributary",
	"p50", "p99", "last", "MB", "messages", "RSS", "peak", "allocs", "alloc",
}

// comparison is a set of results that may be compared: one scenario of one group, by server.
type comparison struct {
	group
	Scenario string
	By       []result
}

// resultOf returns the result of a server.
func (c comparison) resultOf(server string) (result, bool) {
	i := slices.IndexFunc(c.By, func(r result) bool { return r.Server == server && r.Err == nil })
	if i < 0 {
		return result{}, false
	}
	return c.By[i], true
}

// comparisons returns the results side by side, scenarios together.
func (o outcome) comparisons() []comparison {
	var out []comparison
	for _, r := range o.results {
		i := slices.IndexFunc(out, func(c comparison) bool { return c.group == r.group && c.Scenario == r.Scenario })
		if i < 0 {
			i = len(out)
			out = append(out, comparison{group: r.group, Scenario: r.Scenario})
		}
		out[i].By = append(out[i].By, r)
	}
	slices.SortStableFunc(out, func(a, b comparison) int {
		return slices.Index(scenarios, a.Scenario) - slices.Index(scenarios, b.Scenario)
	})
	return out
}

// writeTable writes every figure, one row a server, grouped by comparison.
func (o outcome) writeTable(w io.Writer) error {
	t := report.Table{Left: 3, Header: []string{
		"scenario", "mode", "server", "resources", "streams", "CPU ms", "least–most", "× floor", "× tributary",
		"p50 ms", "p99 ms", "last ms", "MB", "messages", "RSS before MB", "peak RSS MB", "allocs", "alloc MB",
	}}
	for _, c := range o.comparisons() {
		for _, r := range c.By {
			if r.Err != nil {
				continue
			}
			name := r.Scenario
			if r.Rate > 0 {
				name += fmt.Sprintf(" (%.0f/s)", r.Rate)
			}
			t.Add(name, r.Mode, r.Server, fmt.Sprint(r.Resources), fmt.Sprint(r.Streams),
				millis(r.CPU), spread(r), c.ratio(r, engine.Floor), c.ratio(r, engine.Tributary),
				millis(r.P50), millis(r.P99), millis(r.Last), mega(r.Bytes), count(r.Messages),
				mega(r.RSS), mega(r.PeakRSS), count(r.Allocs), mega(r.AllocBytes))
		}
	}
	if o.columns != nil {
		t.Keep(func(i int) bool { return slices.Contains(o.columns, columns[i]) })
	}
	_, err := t.WriteTo(w)
	return err
}

// ratio returns the CPU of r in terms of that of another server in the same comparison.
func (c comparison) ratio(r result, server string) string {
	baseline, ok := c.resultOf(server)
	if !ok || baseline.CPU <= 0 {
		return ""
	}
	if c.Scenario == idle || c.Scenario == storm { // the idle figures are noise, and in a storm each server does its best
		return ""
	}
	return fmt.Sprintf("%.2f", float64(r.CPU)/float64(baseline.CPU))
}

// writeErrors names the failed measurements.
func (o outcome) writeErrors(w io.Writer) error {
	var errs []error
	for _, r := range o.results {
		if r.Err != nil {
			_, err := fmt.Fprintf(w, "- not measured: %s, %s: %v\n", r.Scenario, r.benchCase, r.Err)
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// failed reports whether anything could not be measured.
func (o outcome) failed() bool {
	return slices.ContainsFunc(o.results, func(r result) bool { return r.Err != nil })
}

// save writes the table and the plots into a directory.
func (o outcome) save(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	files := map[string]io.WriterTo{}
	var table strings.Builder
	if err := errors.Join(o.writeTable(&table), o.writeErrors(&table)); err != nil {
		return err
	}
	files["results.md"] = strings.NewReader(table.String())
	for _, mode := range modes {
		// The plots show one cut each through the matrix, where the most servers have a figure.
		if c, ok := o.overResources(mode, 100, 50, 500, 1000, 1); ok {
			files["change-by-resources-"+mode+".svg"] = c
		}
		if c, ok := o.overStreams(mode, 10_000, 1_000, 100_000); ok {
			files["change-by-streams-"+mode+".svg"] = c
		}
	}
	for name, content := range files {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			return err
		}
		_, err = content.WriteTo(f)
		if err := errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("writing %s: %w", name, err)
		}
	}
	return nil
}

// overResources plots the cost of one change against resources, for the first of the numbers of streams that has a line.
func (o outcome) overResources(mode string, streams ...int) (report.Chart, bool) {
	for _, n := range streams {
		c := o.chart(func(g group) (float64, bool) { return float64(g.Resources), g.Mode == mode && g.Streams == n })
		if len(c.Series) > 0 {
			c.Title = fmt.Sprintf("One change to %d streams (%s)", n, mode)
			c.X = "resources"
			return c, true
		}
	}
	return report.Chart{}, false
}

// overStreams is the same against streams.
func (o outcome) overStreams(mode string, resources ...int) (report.Chart, bool) {
	for _, n := range resources {
		c := o.chart(func(g group) (float64, bool) { return float64(g.Streams), g.Mode == mode && g.Resources == n })
		if len(c.Series) > 0 {
			c.Title = fmt.Sprintf("One change among %d resources (%s)", n, mode)
			c.X = "streams"
			return c, true
		}
	}
	return report.Chart{}, false
}

// chart plots the CPU of one change of every server over the value x of a group. A server with a single point is left
// out.
func (o outcome) chart(x func(group) (float64, bool)) report.Chart {
	c := report.Chart{Y: "server CPU, ms"}
	for _, server := range engine.Names() {
		s := report.Series{Name: server}
		for _, r := range o.results {
			if r.Server != server || r.Scenario != oneChange || r.Err != nil || r.CPU <= 0 {
				continue
			}
			if value, ok := x(r.group); ok {
				s.Points = append(s.Points, report.Point{X: value, Y: float64(r.CPU) / float64(time.Millisecond)})
			}
		}
		if len(s.Points) > 1 {
			c.Series = append(c.Series, s)
		}
	}
	return c
}

// spread is empty where there was one measurement only.
func spread(r result) string {
	if r.Repeats < 2 {
		return ""
	}
	return millis(r.Least) + "–" + millis(r.Most)
}

func millis(d time.Duration) string {
	if d == 0 {
		return ""
	}
	ms := float64(d) / float64(time.Millisecond)
	switch {
	case ms >= 100:
		return fmt.Sprintf("%.0f", ms)
	case ms >= 10:
		return fmt.Sprintf("%.1f", ms)
	}
	return fmt.Sprintf("%.2f", ms)
}

// count leaves out missing values.
func count(n uint64) string {
	if n == 0 {
		return ""
	}
	return fmt.Sprint(n)
}

func mega(n uint64) string {
	if n == 0 {
		return ""
	}
	if n < 10_000_000 {
		return fmt.Sprintf("%.2f", float64(n)/1e6)
	}
	return fmt.Sprintf("%.0f", float64(n)/1e6)
}
