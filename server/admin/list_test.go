package admin

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

// A list is written as the whole would be, one element at a time.
func TestAListIsWrittenAsItIsMade(t *testing.T) {
	for n := range 4 {
		all := []any{}
		for i := range n {
			all = append(all, clientType{TypeURL: "a <b>", Names: i, Acked: &Exchange{Nonce: "1"}})
		}
		var whole, list bytes.Buffer
		e := json.NewEncoder(&whole)
		e.SetIndent("", "  ")
		e.SetEscapeHTML(false)
		require.NoError(t, e.Encode(all))
		require.NoError(t, writeList(&list, func(yield func(any) bool) {
			for i, v := range all {
				require.Equal(t, i, bytes.Count(list.Bytes(), []byte("type_url")), "the one before is written")
				if !yield(v) {
					return
				}
			}
		}))
		require.Equal(t, whole.String(), list.String())
	}
}
