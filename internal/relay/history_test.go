package relay

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/history"
)

// TestHistory_ContinuesAfterRestart changes an object before, while and after the program does not run.
func TestHistory_ContinuesAfterRestart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	put := func(port int) { write(t, dir+"/rules/a.yaml", entry("prod", "a", port)) }
	put(1)
	configured(t, dir, "name: rules, address: 'fs://./rules'")
	rig := startReady(t, dir)
	changes := func(want int) (events []string) {
		eventually(t, func() error {
			var answer history.Answer
			if err := json.Unmarshal([]byte(rig.page(t, "/debug/history?kind=se&name=a")), &answer); err != nil {
				return err
			}
			events = nil
			for _, e := range answer.Entries {
				if event := e.Event + " " + e.Source; e.Unwatched {
					events = append(events, event+" unwatched")
				} else {
					events = append(events, event)
				}
			}
			if len(events) < want || answer.From.IsZero() {
				return errors.New(rig.page(t, "/debug/history"))
			}
			return nil
		})
		return events
	}
	changes(0)
	put(2)
	changes(1)
	rig.stop()
	put(3)
	rig = startReady(t, dir)
	changes(2) // during a time when it was served, or by comparison with its last served version
	put(4)
	require.Len(t, changes(3), 3)
}
