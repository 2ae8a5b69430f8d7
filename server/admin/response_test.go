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

// A list is written one element at a time, with the text of the whole list.
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

// A state is written one object at a time. The writes end when the client disconnects.
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
			closed := closingWriter(writes)
			require.ErrorIs(t, writeState(&closed, state, true), io.ErrClosedPipe)
			require.Zero(t, closed)
		}
	}
}

// closingWriter is the writer to a client that disconnects after some writes.
type closingWriter int

func (w *closingWriter) Write(b []byte) (int, error) {
	if *w == 0 {
		return 0, io.ErrClosedPipe
	}
	*w--
	return len(b), nil
}
