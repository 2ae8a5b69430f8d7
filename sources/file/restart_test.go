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
		restarting := prepareRestarting(t)
		restarting.write("a.yaml", "x=x1.example.com")
		restarting.write("b.yaml", "w=y1.example.com")
		restarting.restart(Settings{})
		restarting.write("a.yaml", brokenYAML)
		restarting.awaitQuarantined(1)
		restarting.Stop()
		restarting.write("c.yaml", brokenYAML)
		restarting.remove("a.yaml")
		if changed {
			restarting.write("c.yaml", brokenYAML+"# not as it was\n")
		}
		for range 2 {
			restarting.restart(Settings{})
			restarting.Await("a.yaml is withdrawn", func() bool { return restarting.Status().Groups == 2 })
			require.Equal(t, want, restarting.host("x"))
			require.Equal(t, "y1.example.com", restarting.host("w"))
		}
		restarting.write("c.yaml", "z=z1.example.com")
		restarting.awaitHost("z", "z1.example.com")
		require.Empty(t, restarting.host("x"))
	}
}

// A file that cannot be opened may be another one by a new name.
func TestFileRenamedAndUnreadable(t *testing.T) {
	live := prepare(t, "a.yaml x=x1.example.com", "b.yaml w=y1.example.com")
	live.startSynced()
	live.disk.fail("c.yaml", fs.ErrPermission)
	live.rename("a.yaml", "c.yaml")
	live.awaitQuarantined(1)
	require.Equal(t, "x1.example.com", live.host("x"))
	live.remove("c.yaml")
	live.awaitHost("x", "")
}
