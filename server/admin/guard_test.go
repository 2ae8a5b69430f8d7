package admin_test

import (
	"encoding/json"
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
func (w *world) Release(name string) (objects, endpoints int, err error) {
	for i, src := range w.sources {
		switch {
		case src.Name != name:
		case src.Held == nil:
			return 0, 0, fmt.Errorf("release source %q: %w", name, sources.ErrNothingHeld)
		default:
			w.sources[i].Held = nil
			return src.Held.Objects, src.Held.Endpoints, nil
		}
	}
	return 0, 0, fmt.Errorf("release source %q: %w", name, sources.ErrNotFound)
}

func TestGuard(t *testing.T) {
	since := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	hold := &guard.Status{Since: since, Why: "60 of 100 objects", Objects: 60, Endpoints: 120}
	w := &world{sources: []sources.Status{{Name: "a", Held: hold}, {Name: "b"}}, holding: []string{"a"}}
	s := newServer(w)

	status, body := get(t, s, "/debug/guard")
	require.Equal(t, http.StatusOK, status)
	var all []admin.Guarded
	require.NoError(t, json.Unmarshal([]byte(body), &all))
	require.Equal(t, []admin.Guarded{{Source: "a", Status: *hold}}, all)

	_, body = get(t, s, "/debug/status")
	var st admin.Status
	require.NoError(t, json.Unmarshal([]byte(body), &st))
	assert.Equal(t, 1, st.Holds)
	assert.Equal(t, &admin.Hold{Since: since, Why: hold.Why, Objects: 60, Endpoints: 120}, st.Sources[0].Hold)

	for path, want := range map[string]struct {
		status int
		body   string
	}{
		"/-/guard/release":          {http.StatusBadRequest, "want ?source=NAME\n"},
		"/-/guard/release?source=c": {http.StatusNotFound, "release source \"c\": no source of this name\n"},
		"/-/guard/release?source=b": {http.StatusConflict, "release source \"b\": nothing is held\n"},
		"/-/guard/release?source=a": {http.StatusOK, "60 objects and 120 endpoints of a are let go\n"},
	} {
		status, body := post(t, s, path, http.Header{})
		assert.Equal(t, want.status, status, path)
		assert.Equal(t, want.body, body, path)
	}
	_, body = get(t, s, "/debug/guard")
	require.Equal(t, "[]\n", body)
}

func TestReadyWithWhatAnEarlierRunRead(t *testing.T) {
	w := &world{sources: []sources.Status{{Name: "a", Stale: true}}}
	w.MarkSynced()
	status, _ := get(t, newServer(w), "/-/ready")
	require.Equal(t, http.StatusOK, status)
	w.sources[0].Stale = false
	status, _ = get(t, newServer(w), "/-/ready")
	require.Equal(t, http.StatusServiceUnavailable, status)
}
