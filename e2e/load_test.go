package e2e

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"tributary/e2e/fixture"
)

// loadReport is the part of the output of `load -json` of the module bench that tests read.
type loadReport struct {
	Clients int `json:"clients"`
	Synced  int `json:"synced"`
	Failed  int `json:"failed"`
	Initial struct {
		Resources int `json:"resources"`
	} `json:"initial"`
	Later struct {
		Messages int `json:"messages"`
	} `json:"later"`
	Changes int `json:"changes"`
	Lag     struct {
		Count int `json:"count"`
	} `json:"lag_seconds"`
}

// TestLoad shows that bench/load gets the same objects from tributary and from an istiod that reads from it, for each
// client and in both variants of the protocol, and counts the changes that come meanwhile.
func TestLoad(t *testing.T) {
	t.Parallel()
	const clients = 20 // istiod takes 25 a second.
	dir := t.TempDir()
	fillWith(t, dir, 10)
	write(t, dir, "s000.yaml", serviceEntry("s000", 1))
	tributary, istiod := serve(t, dir)
	istiod.AwaitFolders(t, dir)
	program := loadProgram(t)
	for name, addr := range map[string]string{"tributary": tributary.XDS, "istiod": istiod.GRPC} {
		for _, mode := range []string{"sotw", "delta"} {
			t.Run(name+"/"+mode, func(t *testing.T) {
				stop := keepChanging(t, filepath.Join(dir, "s000.yaml"))
				out, code := fixture.Run(t, program, "-server", addr, "-clients", "20", "-mode", mode,
					"-types", "se,vs", "-duration", "3s", "-json")
				t.Logf("%d changes of a file: %s", stop(), out)
				require.Zero(t, code)
				var r loadReport
				require.NoError(t, json.Unmarshal([]byte(out), &r))
				assert.Equal(t, clients, r.Clients)
				assert.Equal(t, clients, r.Synced)
				assert.Zero(t, r.Failed)
				assert.GreaterOrEqual(t, r.Initial.Resources, clients*10, "each client was sent every object")
				assert.Positive(t, r.Later.Messages)
				if name == "tributary" {
					assert.Positive(t, r.Changes)
					assert.Positive(t, r.Lag.Count)
				}
			})
		}
	}
}

// loadProgram builds bench/load.
func loadProgram(t *testing.T) string {
	t.Helper()
	program := filepath.Join(t.TempDir(), "load")
	_, code := fixture.Run(t, "go", "build", "-C", "../bench", "-o", program, "./load")
	require.Zero(t, code)
	return program
}

// keepChanging changes a file again and again until it is stopped, and then returns the number of changes.
func keepChanging(t *testing.T, file string) (stop func() int) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	changes := make(chan int, 1)
	go func() {
		n := 0
		defer func() { changes <- n }()
		for tick := time.NewTicker(20 * time.Millisecond); ; {
			select {
			case <-tick.C:
			case <-ctx.Done():
				return
			}
			n++
			next := filepath.Join(filepath.Dir(file), ".next")
			err := os.WriteFile(next, []byte(serviceEntry("s000", 1000+n)), 0o600)
			if err == nil {
				err = os.Rename(next, file)
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	}()
	return func() int {
		cancel()
		return <-changes
	}
}
