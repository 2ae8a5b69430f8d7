package process

import (
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestCheck(t *testing.T) {
	for _, good := range []string{
		"127.0.0.1:0", ":16010", "host.name:65535", "[::1]:1", "unix:///run/x.sock", "unix:///run/x.sock?mode=0660&group=ops",
	} {
		require.NoError(t, CheckAddress(good), good)
	}
	for bad, want := range map[string]string{
		"16010":                       "want host:port or unix:///PATH",
		"h:65536":                     "want a port from 0 to 65535",
		"h:x":                         "want a port from 0 to 65535",
		"unix://x.sock":               "three slashes",
		"unix:///":                    "three slashes",
		"unix:///x?mode=rw":           "want an octal number",
		"unix:///x?mode=1000":         "want an octal number",
		"unix:///x?owner=root":        `unknown parameter "owner"`,
		"unix:///x.sock?mode=0600#no": "three slashes",
	} {
		require.ErrorContains(t, CheckAddress(bad), want, bad)
	}
}

func TestUnixSockets(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "s")
	listener, err := Listen(t.Context(), "unix://"+path+"?mode=0660")
	require.NoError(t, err)
	info, err := os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o660), info.Mode().Perm())

	_, err = Listen(t.Context(), "unix://"+path)
	require.EqualError(t, err, path+" is in use by another program")
	require.ErrorIs(t, err, syscall.EADDRINUSE)

	listener.(*net.UnixListener).SetUnlinkOnClose(false) // as after a crash
	require.NoError(t, listener.Close())
	listener, err = Listen(t.Context(), "unix://"+path)
	require.NoError(t, err)
	info, err = os.Stat(path)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o600), info.Mode().Perm())
	require.NoError(t, listener.Close())

	require.NoError(t, os.WriteFile(path, nil, 0o600))
	_, err = Listen(t.Context(), "unix://"+path)
	require.EqualError(t, err, path+" is there, and no socket")
	_, err = Listen(t.Context(), "unix://"+filepath.Join(dir, "t")+"?group=nobody-has-this-name")
	require.EqualError(t, err, "group nobody-has-this-name of "+filepath.Join(dir, "t")+": there is no such group")
	require.NoFileExists(t, filepath.Join(dir, "t"))
}

func TestAPortInUse(t *testing.T) {
	listener, err := Listen(t.Context(), "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, listener.Close()) })
	_, err = Listen(t.Context(), listener.Addr().String())
	require.EqualError(t, err, listener.Addr().String()+" is in use by another program")
}

// What the system refuses is said in words, and stays what it is for programs.
func TestWhereNobodyCanListen(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "file"), nil, 0o600))
	for address, want := range map[string]struct {
		said string
		is   error
	}{
		"192.0.2.77:0":                  {"192.0.2.77:0: this machine does not have the address", syscall.EADDRNOTAVAIL},
		"unix://" + dir + "/no/sock":    {dir + "/no/sock: there is no such directory", syscall.ENOENT},
		"unix://" + dir + "/file/sock":  {dir + "/file/sock: there is no such directory", syscall.ENOTDIR},
		"unix://" + dir + "/" + tooLong: {dir + "/" + tooLong + ": that is too long for a socket", syscall.EINVAL},
	} {
		_, err := Listen(t.Context(), address)
		require.EqualError(t, err, want.said)
		require.ErrorIs(t, err, want.is)
	}
	denied := &net.OpError{Op: "listen", Err: os.NewSyscallError("bind", syscall.EACCES)}
	require.EqualError(t, refused("127.0.0.1:80", denied), "127.0.0.1:80: this user may not listen there")
}

// tooLong is longer than a system takes of a socket.
const tooLong = "012345678901234567890123456789012345678901234567890123456789" +
	"0123456789012345678901234567890123456789012345678901234567890123456789"
