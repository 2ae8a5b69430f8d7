package admin

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/internal/history"
)

// A list is written as the whole would be, one element at a time.
func TestWriteList_OneElementAtATime(t *testing.T) {
	for n := range 4 {
		values := []any{}
		for i := range n {
			values = append(values, typeEntry{TypeURL: "a <b>", Names: i, Exchanges: Exchanges{Acked: &Exchange{Nonce: "1"}}})
		}
		var complete, list bytes.Buffer
		e := json.NewEncoder(&complete)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(values))
		require.NoError(t, writeList(&list, func(yield func(any) bool) {
			for i, v := range values {
				require.Equal(t, i, bytes.Count(list.Bytes(), []byte("type_url")), "the one before is written")
				if !yield(v) {
					return
				}
			}
		}))
		require.Equal(t, complete.String(), list.String())
	}
}

// An earlier state is written object by object, and not at all for a client that has gone.
func TestWriteState_OneObjectAtATime(t *testing.T) {
	for n := range 4 {
		state := &history.State{
			Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Objects: []*history.Object{}, Unknown: []string{"a \"objects\":null"},
		}
		for i := range n {
			state.Objects = append(state.Objects, &history.Object{Place: fmt.Sprint(i)})
		}
		want, err := json.Marshal(state)
		require.NoError(t, err)
		var page bytes.Buffer
		require.NoError(t, writeState(&page, state, true))
		require.JSONEq(t, string(want), page.String())
		for writes := range 2 * n {
			closed := leaves(writes)
			require.ErrorIs(t, writeState(&closed, state, true), io.ErrClosedPipe)
			require.Zero(t, closed)
		}
	}
}

// leaves is a client that goes after so many writes.
type leaves int

func (l *leaves) Write(b []byte) (int, error) {
	if *l == 0 {
		return 0, io.ErrClosedPipe
	}
	*l--
	return len(b), nil
}
