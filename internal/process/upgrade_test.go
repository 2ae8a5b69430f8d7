package process

import (
	"fmt"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// A process that has ended before it is told a step is gone, unless it has said why it ends.
func TestExchangeWithAProcessThatHasEnded(t *testing.T) {
	for last, want := range map[string]string{"": ErrGone.Error(), failed + "no room\n": "no room"} {
		ours, theirs := net.Pipe()
		p := newPeer(ours)
		_, err := fmt.Fprint(theirs, last)
		require.NoError(t, err)
		require.NoError(t, theirs.Close())
		require.EqualError(t, p.Exchange(t.Context(), Prepared, Restore), want)
		require.NoError(t, p.Close())
	}
}
