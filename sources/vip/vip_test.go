package vip_test

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/sources/vip"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newTable(t require.TestingT, prefix string) *vip.Table {
	table, err := vip.New(netip.MustParsePrefix(prefix))
	require.NoError(t, err)
	return table
}

func address(t require.TestingT, table *vip.Table, host string) string {
	a, err := table.Address(host)
	require.NoError(t, err)
	return a.String()
}

// These addresses are in files and in configurations of users: they may not change from one release to the next.
func TestAddresses_Stable(t *testing.T) {
	table, err := vip.New(vip.Default)
	require.NoError(t, err)
	require.Equal(t, "241.99.121.208", address(t, table, "reviews.service.consul"))
	require.Equal(t, "241.4.122.71", address(t, table, "redis.service.consul"))
	require.Equal(t, "fd00::1763:c896:2963:79d0", address(t, newTable(t, "fd00::/16"), "reviews.service.consul"))
}

// A small table with many collisions: each host has a distinct address in the range, which stays, and survives the
// file.
func TestTable(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		prefix := rapid.SampledFrom([]string{"10.0.0.0/24", "241.0.0.0/8", "fd00::/120", "10.1.2.0/20"}).Draw(t, "prefix")
		table := newTable(t, prefix)
		hosts := map[string]string{}
		owner := map[string]string{}
		for _, host := range rapid.SliceOfN(rapid.StringMatching(`[a-z]{1,3}`), 0, 200).Draw(t, "hosts") {
			a := address(t, table, host)
			require.True(t, netip.MustParsePrefix(prefix).Contains(netip.MustParseAddr(a)))
			require.Contains(t, []string{"", a}, hosts[host], "the address of %s changed", host)
			require.Contains(t, []string{"", host}, owner[a], "%s has two owners", a)
			hosts[host], owner[a] = a, host
		}
		path := filepath.Join(dir, "vips")
		_ = os.Remove(path)
		require.NoError(t, table.Save(path))
		loaded := newTable(t, prefix)
		require.NoError(t, loaded.Load(path))
		for host, a := range hosts {
			require.Equal(t, a, address(t, loaded, host))
		}
	})
}

func TestFull(t *testing.T) {
	table := newTable(t, "10.0.0.0/24")
	for i := range 254 {
		_, err := table.Address(fmt.Sprint("host-", i))
		require.NoError(t, err)
	}
	_, err := table.Address("one-more")
	require.EqualError(t, err, "virtual addresses: all of 10.0.0.0/24 are given away")
	require.NotEmpty(t, address(t, table, "host-7"), "those that have one keep it")
}

func TestRanges_Validated(t *testing.T) {
	for prefix, message := range map[string]string{
		"10.0.0.0/25": "too small", "240.240.7.0/24": "istiod gives addresses of 240.240.0.0/16", "240.0.0.0/4": "istiod gives",
	} {
		_, err := vip.New(netip.MustParsePrefix(prefix))
		require.ErrorContains(t, err, message)
	}
	_, err := vip.New(netip.Prefix{})
	require.ErrorContains(t, err, "not a range")
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vips")
	table := newTable(t, "10.0.0.0/24")
	require.NoError(t, table.Load(path), "there need not be one")
	require.NoError(t, table.Save(path))
	require.NoFileExists(t, path, "no address to save")
	require.ErrorContains(t, table.Load(t.TempDir()), "is a directory", "a file that cannot be read prevents the start")

	b, a := address(t, table, "b.example.com"), address(t, table, "a.example.com")
	require.NoError(t, table.Save(path))
	content, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Contains(t, string(content), fmt.Sprintf("\n%s a.example.com\n%s b.example.com\n", a, b))
	temporary, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".vips*"))
	require.NoError(t, err)
	require.Empty(t, temporary)

	// A chosen address counts; addresses outside the range do not.
	require.NoError(t, os.WriteFile(path, []byte("# mine\n10.0.0.77 a.example.com # by hand\n\n10.9.9.9 b.example.com\n"), 0o600))
	table = newTable(t, "10.0.0.0/24")
	require.NoError(t, table.Load(path))
	require.Equal(t, "10.0.0.77", address(t, table, "a.example.com"))
	require.Equal(t, b, address(t, table, "b.example.com"))

	for content, message := range map[string]string{
		"10.0.0.1\n":                         ":1: virtual addresses: want an address and a host",
		"# x\nten a\n":                       ":2: virtual addresses: want",
		"10.0.0.1 a\n10.0.0.1 b\n":           ":2: virtual addresses: 10.0.0.1 is that of a already",
		"10.0.0.1 a\n10.0.0.1 a\n10.0.0.2 a": ":3: virtual addresses: a has 10.0.0.1 already",
	} {
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		require.ErrorContains(t, newTable(t, "10.0.0.0/24").Load(path), path+message)
	}
}

func TestSave_RetriedAfterFailure(t *testing.T) {
	table := newTable(t, "10.0.0.0/24")
	address(t, table, "a")
	dir := t.TempDir()
	require.ErrorContains(t, table.Save(filepath.Join(dir, "none", "vips")), "virtual addresses: open ")
	require.NoError(t, table.Save(filepath.Join(dir, "vips")), "unsaved addresses are saved by the next call")
	require.FileExists(t, filepath.Join(dir, "vips"))
}

func TestRun(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(dir, "later", "vips")
		table := newTable(t, "10.0.0.0/24")
		ctx, cancel := context.WithCancel(t.Context())
		failures := make(chan error, 10)
		stopped := make(chan struct{})
		go func() {
			defer close(stopped)
			table.Run(ctx, path, func(err error) { failures <- err })
		}()
		address(t, table, "a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		require.Len(t, failures, 1)
		require.ErrorIs(t, <-failures, os.ErrNotExist)

		require.NoError(t, os.Mkdir(filepath.Dir(path), 0o700))
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		require.FileExists(t, path)

		address(t, table, "b") // At the end all is saved.
		cancel()
		<-stopped
		content, err := os.ReadFile(path)
		require.NoError(t, err)
		require.Contains(t, string(content), " b\n")
		require.Empty(t, failures)
	})
}
