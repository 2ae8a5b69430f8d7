package e2e

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	networking "istio.io/api/networking/v1alpha3"

	"tributary/e2e/fixture"
	"tributary/internal/testutil"
)

// change is an entry of /debug/history.
type change struct {
	Name string `json:"name"`
	Old  *struct {
		Body string `json:"body"`
	} `json:"old"`
	New *struct {
		Body string `json:"body"`
	} `json:"new"`
}

// port is that of the ServiceEntry.
func (c *change) port(t *testing.T, body string) int {
	t.Helper()
	text, err := base64.StdEncoding.DecodeString(body)
	require.NoError(t, err)
	var se networking.ServiceEntry
	require.NoError(t, proto.Unmarshal(text, &se))
	return int(se.GetPorts()[0].GetNumber())
}

// changes returns the entries of the history, in order of time.
func changes(t *testing.T, tributary *fixture.Tributary) ([]change, error) {
	status, body, err := fixture.Get(t.Context(), tributary.URL("/debug/history?details=true&encoded=true&limit=100000"))
	if err != nil {
		return nil, err
	}
	if status != 200 {
		return nil, fmt.Errorf("%d: %s", status, body)
	}
	var answer struct {
		Entries []change `json:"entries"`
	}
	return answer.Entries, json.Unmarshal([]byte(body), &answer)
}

// TestHistoryKilled kills the whole program again and again while files change. Every entry that the history has
// returned is there afterwards, each change starts from the result of the one before, and the last one ends in the
// served state: the next process adds the entries that were not written before the end.
func TestHistoryKilled(t *testing.T) {
	t.Parallel()
	const objects, rounds = 5, 8
	dir := t.TempDir()
	next := 1000
	save := func() {
		name := fmt.Sprint("s", next%objects)
		temporary := testutil.WriteFile(t, dir, ".new", serviceEntry(name, next))
		require.NoError(t, os.Rename(temporary, filepath.Join(dir, name+".yaml")))
		next++
	}
	for range objects {
		save()
	}
	tributary := fixture.StartTributary(t, fixture.Files("rules", dir))
	answered := make(map[string]int) // of an object, the newest port that the history told of
	for round := range rounds {
		tributary.AwaitReady(t)
		began, killed := time.Now(), make(chan struct{})
		life := time.Duration(500+rand.IntN(1500)) * time.Millisecond
		var changing sync.WaitGroup
		changing.Go(func() {
			defer close(killed)
			time.Sleep(life)
			tributary.Kill()
		})
		for running := true; running; {
			save()
			if history, err := changes(t, tributary); err == nil {
				for _, c := range history {
					answered[c.Name] = max(answered[c.Name], c.port(t, c.New.Body))
				}
			}
			select {
			case <-killed:
				running = false
			case <-time.After(time.Duration(rand.IntN(150)) * time.Millisecond):
			}
		}
		changing.Wait()
		save() // while tributary does not run
		tributary.Restart(t)
		tributary.AwaitAlive(t)

		var entries []change
		last := make(map[string]int)
		tributary.Await(t, func() (err error) {
			if entries, err = changes(t, tributary); err != nil {
				return err
			}
			clear(last)
			for _, c := range entries {
				last[c.Name] = max(last[c.Name], c.port(t, c.New.Body))
			}
			if name := fmt.Sprint("s", (next-1)%objects); last[name] != next-1 {
				return fmt.Errorf("the newest of %s is %d, want %d", name, last[name], next-1)
			}
			return nil
		})
		for name, port := range answered {
			assert.GreaterOrEqual(t, last[name], port, name)
		}
		leads := make(map[string]int)
		for i := range entries {
			c := &entries[i]
			if before, exists := leads[c.Name]; exists {
				require.NotNil(t, c.Old, "%s", c.Name)
				require.Equal(t, before, c.port(t, c.Old.Body), "%s", c.Name)
			}
			leads[c.Name] = c.port(t, c.New.Body)
		}
		t.Logf("round %d: killed after %s, %d changes", round, time.Since(began).Round(time.Millisecond), len(entries))
	}
	require.NotEmpty(t, answered)
}
