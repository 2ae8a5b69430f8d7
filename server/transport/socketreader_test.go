package transport

import (
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"google.golang.org/grpc/mem"
)

// countedPool counts the buffers that are in use.
type countedPool struct {
	mem.NopBufferPool
	used  atomic.Int32
	taken atomic.Int32
}

func (p *countedPool) Get(size int) *[]byte {
	p.used.Add(1)
	p.taken.Add(1)
	return p.NopBufferPool.Get(size)
}

func (p *countedPool) Put(*[]byte) { p.used.Add(-1) }

// An idle connection without TLS has no read buffer, also one that a ConnectionLimit counts.
func TestSocketReader_IdleConnectionHasNoBuffer(t *testing.T) {
	for _, network := range []string{"tcp", "unix"} {
		t.Run(network, func(t *testing.T) {
			address := "127.0.0.1:0"
			if network == "unix" {
				address = t.TempDir() + "/socket"
			}
			listener, err := net.Listen(network, address)
			require.NoError(t, err)
			listener = NewConnectionLimit(-1, -1, nil, nil).Listener(listener)
			defer func() { require.NoError(t, listener.Close()) }()
			client, err := net.Dial(network, listener.Addr().String())
			require.NoError(t, err)
			start := http2.ClientPreface + strings.Repeat("\x00", frameHeader)
			_, err = io.WriteString(client, start)
			require.NoError(t, err)
			inner, err := listener.Accept()
			require.NoError(t, err)
			server, err := newConnection(inner, NewLimiter(noEngine{}, Limits{}, nil))
			require.NoError(t, err)
			defer func() { require.NoError(t, server.Close()) }()

			pool := &countedPool{}
			read := func() (string, error) {
				buffer, n, err := server.ReadOnReady(64, pool)
				if err != nil {
					require.Nil(t, buffer)
					return "", err
				}
				defer pool.Put(buffer)
				return string((*buffer)[:n]), nil
			}
			text, err := read()
			require.NoError(t, err)
			require.Equal(t, start, text, "what came with the handshake comes first")

			taken := pool.taken.Load()
			texts := make(chan string)
			go func() {
				text, _ := read()
				texts <- text
			}()
			require.Eventually(t, func() bool { return pool.taken.Load() > taken && pool.used.Load() == 0 },
				10*time.Second, time.Millisecond, "the reader looked, and waits without a buffer")
			ping := "\x00\x00\x08\x06\x00\x00\x00\x00\x00payload!"
			_, err = io.WriteString(client, ping)
			require.NoError(t, err)
			require.Equal(t, ping, <-texts)

			require.NoError(t, client.Close())
			_, err = read()
			require.ErrorIs(t, err, io.EOF)
			require.Zero(t, pool.used.Load())
			require.NoError(t, inner.SetReadDeadline(time.Now().Add(-time.Second)))
			_, err = read()
			require.ErrorContains(t, err, "timeout")
			require.Zero(t, pool.used.Load())
		})
	}
}

// Other connections are read as they are: those of TLS have decrypted bytes that no socket has.
func TestSocketReader_OtherConnections(t *testing.T) {
	ours, theirs := net.Pipe()
	require.Nil(t, newSocketReader(ours).socket)
	go func() { _, _ = io.WriteString(theirs, http2.ClientPreface+strings.Repeat("\x00", frameHeader)+"more") }()
	server, err := newConnection(ours, NewLimiter(noEngine{}, Limits{}, nil))
	require.NoError(t, err)
	pool := &countedPool{}
	for _, expected := range []string{http2.ClientPreface + strings.Repeat("\x00", frameHeader), "more"} {
		buffer, n, err := server.ReadOnReady(64, pool)
		require.NoError(t, err)
		require.Equal(t, expected, string((*buffer)[:n]))
	}
	require.NoError(t, theirs.Close())
	_, n, err := server.ReadOnReady(64, pool)
	require.Zero(t, n)
	require.ErrorIs(t, err, io.EOF)
}
