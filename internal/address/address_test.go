package address

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	a, err := Parse("zookeeper", "host", "2181", "zookeeper://bob:s3@cret@a,b:99/root?backup=c,%20b:99&backup=[::1]&x=y")
	require.NoError(t, err)
	require.Equal(t, []string{"a:2181", "b:99", "c:2181", "[::1]:2181"}, a.Servers)
	require.Equal(t, "bob", a.User)
	require.Equal(t, "s3@cret", a.Password.Reveal())
	require.Equal(t, "/root", a.Path)
	require.Equal(t, "y", a.Params.Get("x"))
	a, err = Parse("nacos", "host", "8848", "nacos://a?username=bob&password=s3cret")
	require.NoError(t, err)
	require.Equal(t, "bob s3cret", a.User+" "+a.Password.Reveal())
	a, err = Parse("zookeeper", "host", "2181", "zookeeper://bob:^[s3%40]@[::1]:1,::2,a:3,b:4/r%20t")
	require.NoError(t, err)
	require.Equal(t, []string{"[::1]:1", "[::2]:2181", "a:3", "b:4"}, a.Servers)
	require.Equal(t, "bob ^[s3@] /r t", a.User+" "+a.Password.Reveal()+" "+a.Path)
	for text, want := range map[string]string{
		"zookeeper://bob:s3cret@a:b:c/\x01": "address: want zookeeper://host",
		"nacos://bob:s3cret@a":              `address: want zookeeper://host, got "nacos://a"`,
		"zookeeper://":                      `address: want zookeeper://host, got "zookeeper://"`,
		"zookeeper://a?backup=:1":           `address: want host:port, got ":1"`,
		"zookeeper://a?backup=b:0":          `address: want host:port, got "b:0"`,
		"zookeeper://a?backup=b,":           `address: want host:port, got ""`,
		"zookeeper://a:b:c":                 `address: want host:port, got "a:b:c"`,
		"zookeeper://a b":                   `address: want host:port, got "a b"`,
		"zookeeper://a#b":                   "address: it has no fragment; write # as %23",
		"zookeeper://bob:s3%cret@a":         "address: the user and password cannot be read: want user:password@, with % as %25",
		"zookeeper://:s3cret@a":             "address: the user and password cannot be read: want user:password@, with % as %25",
		"zookeeper://a?x=s3%cret":           "address: what is behind ? cannot be read: want name=value&name=value, with % as %25",
		"zookeeper://bob:s3c/ret@a":         misplacedAt,
		"zookeeper://bob:12345/secret@a":    misplacedAt,
		"zookeeper://bob:s3c?ret@a":         misplacedAt,
		"zookeeper:///s3cret@a":             misplacedAt,
		"zookeeper://a:1/x,http://b:1/y": "address: a path has no comma; servers stand together before it: " +
			"zookeeper://host:port,host:port/x",
		"zookeeper://bob:s3cret@a,eve:s3cret@b": "address: a user and password stand once, before the first server; in a password write @ as " +
			"%40 and , as %2C",
		"zookeeper://bob@a":             "address: the user has no password: want user:password@",
		"zookeeper://a?username=bob":    "address: want both parameters, username and password, or none",
		"zookeeper://a?password=s3cret": "address: want both parameters, username and password, or none",
		"zookeeper://a/%zz":             `address: its path: invalid URL escape "%zz"`,
	} {
		_, err := Parse("zookeeper", "host", "2181", text)
		require.EqualError(t, err, want, text)
	}
}

const misplacedAt = "address: there is an @ behind the first / or ?; in a user or password write / as %2F and ? as %3F, in a path @ as %40"

func TestShown(t *testing.T) {
	for text, want := range map[string]string{
		"zookeeper://bob:s3cret@a:1/root?group=g": "zookeeper://a:1/root?group=g",
		"nacos://a?username=bob&password=s&x=y":   "nacos://a?x=…",
		"nacos://a?secretKey=s3cret&kind=dubbo":   "nacos://a?secretKey=…&kind=dubbo",
		"consul://a?acl-token=s3cret&s3cret":      "consul://a?acl-token=…&s3cret=…",
		"consul://a?Token=s3cret":                 "consul://a",
		"xds://a,b":                               "xds://a,b",
		"fs:///a:x@b/c":                           "fs:///a:x@b/c",
		"zookeeper://bob:s3c/ret@a:1/root":        "zookeeper://a:1/root",
		"zookeeper://bob:s3c?ret@a:1":             "zookeeper://a:1",
		"consul-kv://h:8500/a@b":                  "consul-kv://h:8500/a@b",
		"nothing":                                 "nothing",
	} {
		require.Equal(t, want, Shown(text), text)
	}
}

// What logs in is not shown by who prints the whole, wherever in the address it stands.
func TestAnAddressShowsNoPassword(t *testing.T) {
	for _, text := range []string{"nacos://bob:pl4nted@a", "nacos://a?username=bob&password=pl4nted", "nacos://a?token=pl4nted"} {
		a, err := Parse("nacos", "host", "1", text)
		require.NoError(t, err)
		require.NotContains(t, fmt.Sprintf("%v %+v %#v", a, a, a), "pl4nted")
	}
}
