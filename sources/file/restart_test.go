package file

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/resource"
	"tributary/sources"
)

// heirSink holds a file of an earlier run, and notes in which order it is told things.
type heirSink struct {
	groups []string
	told   []string
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
			s.told = append(s.told, "withdraw "+c.Group)
		}
	}
	return nil
}

func (s *heirSink) Synced() {
	s.told = append(s.told, "synced")
	close(s.synced)
}

// What has gone since an earlier run is withdrawn before the source says that it has been read: whoever holds losses back
// goes by that.
func TestMissingAtTheStartIsWithdrawnBeforeSynced(t *testing.T) {
	source, err := New("fs://"+t.TempDir(), Settings{QuietDelay: 20 * time.Millisecond})
	require.NoError(t, err)
	sink := &heirSink{groups: []string{"gone.yaml"}, synced: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- source.Run(ctx, sink) }()
	<-sink.synced
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, []string{"withdraw gone.yaml", "synced"}, sink.told)
}
