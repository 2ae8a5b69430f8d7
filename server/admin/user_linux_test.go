package admin

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"tributary/server/identity"
)

// postAs sends a POST from a socket of another user, or of our own, and returns the status of the answer.
func postAs(t *testing.T, uid int, address *net.TCPAddr, path string) int {
	t.Helper()
	if uid != os.Geteuid() { // the kernel takes the user of the thread that makes a socket
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		_, err := unix.SetfsuidRetUid(uid)
		require.NoError(t, err)
		defer func() {
			_, err := unix.SetfsuidRetUid(os.Geteuid())
			require.NoError(t, err)
		}()
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: address.Port, Addr: [4]byte{127, 0, 0, 1}}))
	f := os.NewFile(uintptr(fd), "")
	conn, err := net.FileConn(f)
	require.NoError(t, err)
	require.NoError(t, f.Close())
	defer conn.Close() //nolint:errcheck // of a test
	require.NoError(t, conn.SetDeadline(time.Now().Add(time.Minute)))
	_, err = conn.Write([]byte("POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"))
	require.NoError(t, err)
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	return resp.StatusCode
}

func TestOtherUsersMayNotUpgrade(t *testing.T) {
	lis, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	require.NoError(t, err)
	upgrades := 0
	s := New(Options{
		NoDebug: true, Registry: NewRegistry("test"),
		Upgrade: func(context.Context, string) (string, error) { upgrades++; return "done\n", nil },
		MayChange: func(*identity.Identity, []string) error {
			return status.Error(codes.Unauthenticated, "a token is needed")
		},
	})
	ctx, cancel := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- s.Serve(ctx, lis) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-served)
	})
	address := lis.Addr().(*net.TCPAddr)
	require.Equal(t, http.StatusOK, postAs(t, os.Geteuid(), address, "/-/upgrade"))
	require.Equal(t, 1, upgrades)
	if os.Geteuid() != 0 {
		t.Skip("only root can be another user")
	}
	require.Equal(t, http.StatusUnauthorized, postAs(t, 12345, address, "/-/upgrade"))
	require.Equal(t, 1, upgrades)
}

func TestAddressesOfTheKernel(t *testing.T) {
	require.Equal(t, "[::1]:16014", socketAddress("00000000000000000000000001000000:3E8E").String(), "on machines with the low byte first")
	require.Equal(t, "127.0.0.1:16014", socketAddress("0100007F:3E8E").String())
	require.Equal(t, "127.0.0.1:16014", socketAddress("0000000000000000FFFF00000100007F:3E8E").String(), "of a socket of IPv6")
	for _, wrong := range []string{"", "0100007F", "0100007F:", "0100007G:3E8E", "local_address"} {
		require.False(t, socketAddress(wrong).IsValid(), wrong)
	}
}
