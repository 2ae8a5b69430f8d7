package intake_test

import (
	"compress/gzip"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"tributary/internal/intake"
)

// zeros never end.
type zeros struct{ read int }

func (z *zeros) Read(p []byte) (int, error) {
	z.read += len(p)
	return len(p), nil
}

func TestRead(t *testing.T) {
	text, err := intake.Read(strings.NewReader("12345"), 5)
	require.NoError(t, err)
	require.Equal(t, "12345", string(text))
	_, err = intake.Read(strings.NewReader("123456"), 5)
	require.EqualError(t, err, "the answer has more than 5 bytes")
	endless := new(zeros)
	_, err = intake.Read(endless, 2<<20)
	require.EqualError(t, err, "the answer has more than 2 MiB")
	require.Less(t, endless.read, 8<<20)
	_, err = intake.Read(io.MultiReader(strings.NewReader("1"), broken{}), 5)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
}

type broken struct{}

func (broken) Read([]byte) (int, error) { return 0, io.ErrUnexpectedEOF }

// The limit of Read is for decompressed bytes.
func TestRead_CountsDecompressedBytes(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(w)
		_, _ = io.CopyN(z, new(zeros), 64<<20)
		_ = z.Close()
	}))
	defer server.Close()
	resp, err := server.Client().Get(server.URL)
	require.NoError(t, err)
	defer func() { require.NoError(t, resp.Body.Close()) }()
	_, err = intake.Read(resp.Body, 1<<20)
	require.EqualError(t, err, "the answer has more than 1 MiB")
}
