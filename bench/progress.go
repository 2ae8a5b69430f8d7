package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"
)

// progress tells a person how far the run is: on a terminal as one line that is written over, else as a line for each case.
type progress struct {
	w        io.Writer
	total    int
	started  time.Time
	terminal bool

	index int
	name  string
	width int
}

func newProgress(f *os.File, total int) *progress {
	info, err := f.Stat()
	return &progress{w: f, total: total, started: time.Now(), terminal: err == nil && info.Mode()&os.ModeCharDevice != 0}
}

func (p *progress) begin(index int, c benchCase) { p.index, p.name = index, c.String() }

// step shows the current step of a case.
func (p *progress) step(text string) {
	if p.terminal {
		p.overwrite(fmt.Sprintf("%s %s: %s", p.position(), p.name, text))
	}
}

// line is step for steps that take minutes: it also writes where there is no terminal.
func (p *progress) line(text string) {
	if p.terminal {
		p.step(text)
		return
	}
	_, _ = fmt.Fprintf(p.w, "[%s] %s: %s\n", time.Since(p.started).Round(time.Second), p.name, text)
}

// finish shows the results of a case.
func (p *progress) finish(results []result) {
	if p.terminal {
		return
	}
	var parts []string
	for _, r := range results {
		if r.Err != nil {
			parts = append(parts, fmt.Sprintf("%s: %v", r.Scenario, r.Err))
		} else {
			parts = append(parts, fmt.Sprintf("%s %s ms", r.Scenario, millis(r.CPU)))
		}
	}
	_, _ = fmt.Fprintf(p.w, "%s %s: %s\n", p.position(), p.name, strings.Join(parts, ", "))
}

func (p *progress) position() string {
	return fmt.Sprintf("[%d/%d %s]", p.index+1, p.total, time.Since(p.started).Round(time.Second))
}

func (p *progress) end() {
	if p.terminal {
		p.overwrite("")
	}
}

func (p *progress) overwrite(line string) {
	_, _ = fmt.Fprintf(p.w, "\r%-*s", p.width, line)
	if line == "" {
		_, _ = fmt.Fprint(p.w, "\r")
	}
	p.width = len(line)
}
