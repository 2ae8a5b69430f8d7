package file_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/file"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func entry(name, host string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: %s
spec:
  hosts: [%s]
  ports:
  - {number: 80, name: http, protocol: HTTP}
  location: MESH_EXTERNAL
  resolution: DNS
`, name, host)
}

func TestSmoke(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "a.yaml"), []byte(entry("a", "a.example.com")), 0o600))
	src, err := file.New("fs://"+dir, file.Settings{QuietDelay: 5 * time.Millisecond})
	require.NoError(t, err)
	table := new(memstore.Table)
	s := sources.NewSupervisor(sources.Options{})
	require.NoError(t, s.Add(sources.Spec{Name: "f", Source: src, Table: table}))
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	require.Eventually(t, table.Synced, 5*time.Second, time.Millisecond)
	key := resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: "a"}
	require.NotNil(t, table.Snapshot().Get(key), "%+v", s.Status())
	require.NoError(t, os.Remove(filepath.Join(dir, "a.yaml")))
	require.Eventually(t, func() bool { return table.Snapshot().Len() == 0 }, 5*time.Second, time.Millisecond)
	cancel()
	require.NoError(t, <-done)
}
