package admin_test

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/server/admin"
	"tributary/sources"
	"tributary/sources/guard"
)

// Release implements admin.Sources.
func (w *world) Release(name, hold, caller string) (objects, endpoints int, err error) {
	for i, status := range w.sources {
		switch {
		case status.Name != name:
		case status.Held == nil:
			return 0, 0, fmt.Errorf("release source %q: %w", name, sources.ErrNothingHeld)
		case hold != "" && hold != status.Held.ID:
			return 0, 0, fmt.Errorf("release source %q: %w", name, sources.ErrOtherHold)
		default:
			w.released = append(w.released, caller)
			w.sources[i].Held = nil
			return status.Held.Objects, status.Held.Endpoints, nil
		}
	}
	return 0, 0, fmt.Errorf("release source %q: %w", name, sources.ErrNotFound)
}

func TestGuard_ListsAndReleasesHolds(t *testing.T) {
	begin := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hold := &guard.Status{Summary: admin.Hold{ID: "h1", Begun: begin, Why: "60 of 100 objects", Objects: 60, Endpoints: 120}}
	w := &world{sources: []sources.Status{{Name: "a", Held: hold}, {Name: "b"}}}
	server := newServer(w)

	require.Equal(t, []admin.HeldSource{{Source: "a", Status: *hold}}, page[[]admin.HeldSource](t, server, "/debug/guard"))

	st := page[admin.Status](t, server, "/debug/status")
	assert.Equal(t, 1, st.Holds)
	assert.Equal(t, &hold.Summary, st.Sources[0].Hold)

	for _, want := range []struct {
		query  string
		status int
		body   string
	}{
		{"", http.StatusBadRequest, "want ?source=NAME\n"},
		{"?source=c", http.StatusNotFound, "release source \"c\": no source of this name\n"},
		{"?source=b", http.StatusConflict, "release source \"b\": nothing is held\n"},
		{"?source=a&hold=h0", http.StatusConflict, "release source \"a\": a different hold is active\n"},
		{"?source=a&hold=h1&by=anna@bastion", http.StatusOK, "60 objects and 120 endpoints of a are let go\n"},
	} {
		status, body := post(t, server, "/-/guard/release"+want.query, http.Header{"X-Forwarded-For": {"10.0.0.9"}})
		assert.Equal(t, want.status, status, want.query)
		assert.Equal(t, want.body, body, want.query)
	}
	require.Len(t, w.released, 1)
	assert.Regexp(t, `^anna@bastion, from 192\.0\.2\.1:\d+ on behalf of 10\.0\.0\.9$`, w.released[0])
	_, body := get(t, server, "/debug/guard")
	require.Equal(t, "[]\n", body)
}

func TestReady_RestoredSource(t *testing.T) {
	w := &world{sources: []sources.Status{{Name: "a", Stale: true}}}
	w.MarkSynced()
	status, _ := get(t, newServer(w), "/-/ready")
	require.Equal(t, http.StatusOK, status)
}

// TestReady_ReloadedSource checks that a synced view stays ready while an added source is unread.
func TestReady_ReloadedSource(t *testing.T) {
	w := &world{sources: []sources.Status{{Name: "a", State: sources.Unreachable}}}
	status, _ := get(t, newServer(w), "/-/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
	w.MarkSynced()
	status, _ = get(t, newServer(w), "/-/ready")
	require.Equal(t, http.StatusOK, status)
}
