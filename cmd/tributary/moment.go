package main

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"tributary/cmd/internal/client"
	"tributary/internal/history"
	"tributary/resource"
)

// moment is a flag with a time, as people write it. It implements pflag.Value.
type moment struct {
	time.Time
	text string
}

func (m *moment) String() string { return m.text }

// Type is how the help calls the value.
func (m *moment) Type() string { return "time" }

// Set takes a time, in UTC as all times are printed unless it names another zone, or how long ago it was.
func (m *moment) Set(text string) error {
	now := time.Now().UTC()
	if ago, err := time.ParseDuration(strings.TrimPrefix(text, "-")); err == nil {
		*m = moment{now.Add(-ago), text}
		return nil
	}
	for _, form := range []string{time.RFC3339Nano, time.DateTime, "2006-01-02 15:04", "2006-01-02T15:04:05", "2006-01-02T15:04", time.DateOnly} {
		if at, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			*m = moment{at, text}
			return nil
		}
	}
	for _, form := range []string{time.TimeOnly, "15:04"} {
		if at, err := time.ParseInLocation(form, text, now.Location()); err == nil {
			y, month, d := now.Date()
			*m = moment{time.Date(y, month, d, at.Hour(), at.Minute(), at.Second(), 0, now.Location()), text}
			return nil
		}
	}
	return fmt.Errorf("want how long ago, such as 90s or 1h30m, or a time such as 15:04, 2006-01-02 15:04 or 2006-01-02T15:04:05Z, got %q", text)
}

// clocks is how much those of two machines may differ.
const clocks = 5 * time.Second

// past refuses a time that is not over yet, of which nothing is known.
func (m *moment) past(flag string) error {
	if m.After(time.Now().Add(clocks)) {
		return usage("%s %s is in the future", flag, m.text)
	}
	return nil
}

// query is how the admin server is told.
func (m *moment) query() string { return m.UTC().Format(time.RFC3339Nano) }

// servedAt asks an admin server for the objects of a kind, or of all, that were served at a time. The texts are objects of which that is not known.
func servedAt(ctx context.Context, server *client.Admin, at *moment, kind resource.Kind) (rs []*resource.Resource, unknown []string, err error) {
	query := url.Values{"kind": {string(kind)}, "encoded": {"true"}}
	if !at.IsZero() {
		query.Set("time", at.query())
	}
	var state history.State
	if _, err := server.Get(ctx, "/debug/history/at", query, &state); err != nil {
		return nil, nil, err
	}
	for _, o := range state.Objects {
		rs = append(rs, o.Resource())
	}
	for _, name := range state.Unknown {
		unknown = append(unknown, name+": what it was is not known: it changed while no server was running")
	}
	return rs, unknown, nil
}
