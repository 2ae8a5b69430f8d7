package names

import (
	"cmp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestNames(t *testing.T) {
	assert.Equal(t, "web-api", Clean("Web_API."))
	assert.Equal(t, "web", Label("web", "web"))
	assert.NotEqual(t, Label("Web", "Web"), Label("wEb", "wEb"), "names that end up the same get a hash")
	assert.LessOrEqual(t, len(Fit(strings.Repeat("a", 80), "whole", MaxLabel)), MaxLabel)
	assert.NotEqual(t, Fit(strings.Repeat("a", 80), "one", MaxLabel), Fit(strings.Repeat("a", 80), "other", MaxLabel))
	assert.True(t, IsDNSLabel(Hashed("", "whole", MaxLabel)))
	assert.Equal(t, []int{0, 1, 2}, []int{Distance("com.acme"), Distance("com.Acme"), Distance("com_acme")})
	assert.True(t, IsHost("a.b"))
	for _, bad := range []string{"", "A.b", "a..b", "a.1", "-a", strings.Repeat("a", 64)} {
		assert.False(t, IsHost(bad), bad)
	}
	assert.True(t, IsLabelKey("example.com/Zone_1"))
	for _, bad := range []string{"", "a/b/c", "-a", "é", strings.Repeat("a", 64)} {
		assert.False(t, IsLabelKey(bad), bad)
	}
}

func TestAddress(t *testing.T) {
	for given, want := range map[string]string{
		"10.0.0.1": "10.0.0.1", "::ffff:10.0.0.1": "10.0.0.1", "2001:DB8::1": "2001:db8::1", "Host.Example.": "host.example",
		"[fd00:0:0:0:0:0:0:2]": "fd00::2", "fd00:0:0:0:0:0:0:2%4": "fd00::2", "[2001:db8:0:0:0:0:0:5%eth0]": "2001:db8::5",
		"169.254.1.1": "169.254.1.1",
	} {
		got, err := Address(given)
		assert.NoError(t, err)
		assert.Equal(t, want, got)
	}
	for _, bad := range []string{
		"", "0.0.0.0", "::", "[::]", "224.0.0.1", "ff02::1%eth0", "fe80::1%eth0", "fe80::1", "[fe80:0:0:0:fc:ff:fe00:1]", "a b", "1.2.3", "[::1",
		"[a]b",
	} {
		_, err := Address(bad)
		assert.Error(t, err, bad)
	}
}

func TestFitHost(t *testing.T) {
	long := strings.Repeat("x", 70)
	for text, want := range map[string]string{
		"a.b":                                "a.b",
		"-a-..b":                             "a.b",
		"10.0.0.1":                           "10.0.0.x1",
		long + ".b":                          strings.Repeat("x", MaxLabel-1-len(Hash(""))) + "-" + Hash("w") + ".b",
		strings.Repeat("abcdefg.", 40) + "b": "abcdefg-" + Hash("w") + ".b",
	} {
		assert.Equal(t, want, FitHost(text, "w"))
		assert.True(t, IsHost(want))
	}
	assert.Equal(t, []string{"a", "b-c", "d"}, Parts(".A.b_c..d-"))
	assert.Empty(t, Parts("._."))
}

// thing is told apart by its number.
type thing int

func (t thing) String() string { return strconv.Itoa(int(t)) }

func TestDistinct(t *testing.T) {
	last := func(a, b thing) int { return cmp.Compare(b, a) }
	given := Distinct([]thing{1, 2, 3, 2}, last, func(_ thing, toHash string) (name, host, object string) {
		return "x" + toHash, "x" + toHash, "y" + toHash
	})
	assert.Equal(t, map[thing]string{3: "x", 2: "x2", 1: "x1"}, given, "the first of them has the name")
	given = Distinct([]thing{1, 2}, cmp.Compare[thing], func(id thing, toHash string) (name, host, object string) {
		return id.String() + toHash, id.String() + toHash, "y" + toHash
	})
	assert.Equal(t, map[thing]string{1: "1", 2: "22"}, given, "each part is its own")
	given = Distinct([]thing{1, 2}, cmp.Compare[thing], func(_ thing, toHash string) (name, host, object string) {
		return toHash, strings.TrimLeft(toHash, "+2"), toHash
	})
	assert.Equal(t, map[thing]string{1: ""}, given, "one that finds none has none, and it ends")
}

// FuzzJoin has lists of any texts: what is joined is split into the same list, so that no two lists are joined to one text.
func FuzzJoin(f *testing.F) {
	f.Add("a b", "", "1:")
	f.Fuzz(func(t *testing.T, a, b, c string) {
		for _, list := range [][]string{nil, {a}, {a, b}, {a, b, c}} {
			assert.True(t, slices.Equal(list, Split(Join(list...))), "%q", list)
		}
	})
}
