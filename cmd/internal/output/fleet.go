package output

import (
	"fmt"
	"io"
	"time"

	"tributary/internal/words"
	"tributary/server/admin"
)

// Instance is one of a fleet: its status, or why there is none.
type Instance struct {
	Name   string        `json:"name"`
	Status *admin.Status `json:"status,omitempty"`
	Error  string        `json:"error,omitempty"`
}

// Fleet writes a line for each instance.
func Fleet(w io.Writer, all []Instance, now time.Time, screen Screen) error {
	t := &text{now: now, screen: screen}
	rows := t.columns("INSTANCE", "READY", "CONTENT", "OBJECTS", "UNHEALTHY", "HOLDS", "CLIENTS", "UP")
	for _, i := range all {
		st := i.Status
		if st == nil {
			rows.row(i.Name, "-", oneLine(i.Error))
			continue
		}
		ready, unhealthy := "yes", 0
		if len(st.Missing) > 0 {
			ready = "NO"
		}
		for _, s := range st.Sources {
			if s.State != "healthy" || !s.Synced {
				unhealthy++
			}
		}
		rows.row(i.Name, ready, st.Content, st.Objects, unhealthy, st.Holds, len(st.Clients), Brief(now.Sub(st.Started)))
	}
	rows.flush()
	if differ(all) {
		t.line("the instances serve different content")
	}
	return t.writeTo(w)
}

// CheckFleet writes in a few lines whether all is well with the instances, and whether they serve the same, and reports it.
func CheckFleet(w io.Writer, all []Instance) (well bool, err error) {
	t, objects, clients := &text{}, 0, 0
	for _, i := range all {
		if i.Status == nil {
			t.line("%s: %s", i.Name, oneLine(i.Error))
			continue
		}
		for _, trouble := range i.Status.Troubles() {
			t.line("%s: %s", i.Name, trouble.Text)
		}
		objects, clients = max(objects, i.Status.Objects), clients+len(i.Status.Clients)
	}
	if differ(all) {
		for _, i := range all {
			if i.Status != nil {
				t.line("%s: serves content %s, %s: not the same as the others", i.Name, i.Status.Content,
					words.Count(i.Status.Objects, "object", "objects"))
			}
		}
	}
	if well = t.Len() == 0; well {
		t.line("ok: %s, %s, %s", words.Count(len(all), "instance", "instances"), words.Count(objects, "object", "objects"),
			words.Count(clients, "client", "clients"))
	}
	_, err = fmt.Fprint(w, t.String())
	return well, err
}

// differ reports whether instances serve different content.
func differ(all []Instance) bool {
	first := ""
	for _, i := range all {
		switch {
		case i.Status == nil:
		case first == "":
			first = i.Status.Content
		case i.Status.Content != first:
			return true
		}
	}
	return false
}
