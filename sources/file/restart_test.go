package file

import (
	"context"
	"io/fs"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
)

// heirSink has a file of an earlier run, and records the order of withdrawals and synced.
type heirSink struct {
	groups []string
	calls  []string
	synced chan struct{}
}

func (s *heirSink) Groups() []string      { return s.groups }
func (s *heirSink) Report(sources.Health) {}

func (s *heirSink) Replace(group string, rs []*resource.Resource, _ ...sources.Reject) error {
	return s.ReplaceAll([]sources.Content{{Group: group, Resources: rs}})
}

func (s *heirSink) ReplaceAll(contents []sources.Content) error {
	for _, c := range contents {
		if len(c.Resources) == 0 {
			s.calls = append(s.calls, "withdraw "+c.Group)
		}
	}
	return nil
}

func (s *heirSink) Synced() {
	s.calls = append(s.calls, "synced")
	close(s.synced)
}

// Files removed since an earlier run are withdrawn before the source reports synced, because the guard relies on that
// order.
func TestRestart_WithdrawsMissingFilesBeforeSynced(t *testing.T) {
	source, err := New("fs://"+t.TempDir(), Settings{QuietDelay: 20 * time.Millisecond})
	require.NoError(t, err)
	sink := &heirSink{groups: []string{"gone.yaml"}, synced: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx, sink) }()
	<-sink.synced
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, []string{"withdraw gone.yaml", "synced"}, sink.calls)
}

// A file too broken for decoding, and renamed while the source is stopped, is recognized by its text.
func TestBrokenFile_RenamedWhileStopped(t *testing.T) {
	for changed, want := range map[bool]string{false: "x1.example.com", true: ""} {
		r := prepareRestarting(t)
		r.write("a.yaml", entry("x", "x1.example.com"))
		r.write("b.yaml", entry("w", "y1.example.com"))
		r.restart(Settings{})
		r.write("a.yaml", brokenYAML)
		r.awaitQuarantined(1)
		r.stop()
		r.write("c.yaml", brokenYAML)
		r.remove("a.yaml")
		if changed {
			r.write("c.yaml", brokenYAML+"# not as it was\n")
		}
		for range 2 {
			r.restart(Settings{})
			r.await("a.yaml is withdrawn", func() bool { return r.status().Groups == 2 })
			require.Equal(t, want, r.host("x"))
			require.Equal(t, "y1.example.com", r.host("w"))
		}
		r.write("c.yaml", entry("z", "z1.example.com"))
		r.awaitHost("z", "z1.example.com")
		require.Empty(t, r.host("x"))
	}
}

// A file that cannot be opened may be another one by a new name.
func TestFileRenamedAndUnreadable(t *testing.T) {
	l := prepare(t)
	l.write("a.yaml", entry("x", "x1.example.com"))
	l.write("b.yaml", entry("w", "y1.example.com"))
	l.startSynced()
	l.disk.fail("c.yaml", fs.ErrPermission)
	l.rename("a.yaml", "c.yaml")
	l.awaitQuarantined(1)
	require.Equal(t, "x1.example.com", l.host("x"))
	l.remove("c.yaml")
	l.awaitHost("x", "")
}
