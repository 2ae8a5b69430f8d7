package eureka

import (
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
	"tributary/sources/eureka/eurekatest"
)

// ages moves the times of the note into the past.
func (s *shelf) ages(t *testing.T, passed time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.note = moved(t, s.note, -passed)
}

// TestRestartsDuringOutage restarts the source repeatedly while no server answers, for longer than the hold. An
// instance in doubt stays, since no instance can register meanwhile.
func TestRestartsDuringOutage(t *testing.T) {
	for name, forgets := range map[string]bool{"the server keeps its memory": false, "the server forgets": true} {
		t.Run(name, func(t *testing.T) {
			server, s := eurekatest.Start(t), newShelf()
			put(server, "orders", "10.0.0.1", "10.0.0.2")
			stop := s.runs(t, server)
			s.awaits(t, "both", func() bool { return len(s.endpoints(t)["orders"]) == 2 && s.LastNote() != nil })
			server.Stop()
			server.Forget()
			put(server, "orders", "10.0.0.1")
			server.Restart()
			s.awaits(t, "one is in doubt", func() bool { state, _ := s.state(); return state == sources.Degraded })
			stop()
			server.Stop()
			for range 3 {
				s.Report(sources.Health{})
				stop = s.runs(t, server)
				s.awaits(t, "it is away", func() bool { state, _ := s.state(); return state == sources.Unreachable })
				stop()
				s.ages(t, 2*time.Hour) // the hold lasts for one
			}
			if forgets {
				server.Forget()
				put(server, "orders", "10.0.0.1")
			}
			put(server, "carts", "10.0.0.7")
			server.Restart()
			s.runs(t, server)
			s.awaitEndpoints(t, "carts", 1)
			require.True(t, slices.Equal(s.endpoints(t)["orders"], []string{"10.0.0.1", "10.0.0.2"}), "%v", s.endpoints(t))
		})
	}
}

// moved moves all times of a note.
func moved(t *testing.T, note []byte, shift time.Duration) []byte {
	t.Helper()
	return times.ReplaceAllFunc(note, func(text []byte) []byte {
		parsed, err := time.Parse(`"`+time.RFC3339Nano+`"`, string(text))
		require.NoError(t, err)
		return []byte(parsed.Add(shift).Format(`"` + time.RFC3339Nano + `"`))
	})
}

var times = regexp.MustCompile(`"\d{4}-\d\d-\d\dT[^"]*"`)
