package file

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"github.com/stretchr/testify/require"
	"github.com/tidwall/btree"
	"pgregory.net/rapid"

	_ "tributary/internal/testutil" // of the property tests
	"tributary/sources"
)

func event(name string) fsnotify.Event { return fsnotify.Event{Name: name, Op: fsnotify.Create} }

func TestFileNames_Selected(t *testing.T) {
	for name, want := range map[string]bool{
		"a.yaml": true, "a.yml": true, "a.json": true, "A.YAML": true, "a.b.yaml": true, "kustomization.yaml": true,
		".a.yaml": false, ".yaml": false, "a.yaml~": false, "#a.yaml#": false, ".#a.yaml": false, ".a.yaml.swp": false,
		"a.yaml.bak": false, "a.yaml.tmp": false, "a.yaml.rpmsave": false, "a": false, "a.toml": false, "yaml": false, "4913": false,
		"..data": false,
	} {
		require.Equal(t, want, Reads(name), name)
	}
	require.True(t, Hidden("..2026_01"))
	require.True(t, Hidden(".git"))
	require.True(t, Hidden("lost+found"))
	require.False(t, Hidden("rules"))
}

func TestPaths(t *testing.T) {
	require.Equal(t, "a", join("", "a"))
	require.Equal(t, "a/b", join("a", "b"))
	require.Empty(t, parentOf("a"))
	require.Equal(t, "a/b", parentOf("a/b/c"))
	require.True(t, isWithin("a/b", ""))
	require.True(t, isWithin("a/b", "a"))
	require.True(t, isWithin("a", "a"))
	require.False(t, isWithin("ab", "a"))
	require.False(t, isWithin("a", "a/b"))
	require.True(t, containsPath("/a", "/a/b"))
	require.True(t, containsPath("/a", "/a"))
	require.True(t, containsPath("/", "/a"))
	require.False(t, containsPath("/a", "/ab"))
	require.False(t, containsPath("/a/b", "/a"))
	require.True(t, containsPath("/a", "/a/..b"))
}

func TestNew(t *testing.T) {
	wd, err := os.Getwd()
	require.NoError(t, err)
	for address, want := range map[string]string{
		"fs:///etc/rules":       "/etc/rules",
		"fs:///etc//rules/":     "/etc/rules",
		"fs:///etc/my%20rules":  "/etc/my rules",
		"fs:///":                "/",
		"fs://./rules":          filepath.Join(wd, "rules"),
		"fs://.":                wd,
		"fs://../rules":         filepath.Join(filepath.Dir(wd), "rules"),
		"fs:///etc/a.yaml":      "/etc/a.yaml",
		"fs:///etc/50%25.yaml":  "/etc/50%.yaml",
		"fs:///etc/a%3Fb.yaml":  "/etc/a?b.yaml",
		"fs:///etc/../b/a.yaml": "/b/a.yaml",
	} {
		s, err := New(address, Settings{})
		require.NoError(t, err, address)
		require.Equal(t, want, s.root, address)
	}
	for address, want := range map[string]string{
		"/etc/rules":  `address: "/etc/rules": want fs:///path`,
		"file:///etc": `address: "file:///etc": want fs:///path`,
		"":            `address: "": want fs:///path`,
		"fs:/etc":     `address: "fs:/etc": want fs:///path`,
		"fs://":       `address: "fs://": the path is missing; want fs:///path`,
		"fs://etc/rules": `address: "fs://etc/rules": "etc" stands where a host would; want fs:///etc/rules, or fs://./etc/rules for a ` +
			`path from the working directory`,
		"fs:///a?b=c":      `address: "fs:///a?b=c": a path has no query or fragment; write ? as %3F and # as %23`,
		"fs:///a%zz":       `address: "fs:///a%zz": invalid URL escape "%zz"`,
		"fs:///a%00b.yaml": `address: "fs:///a%00b.yaml": a path has no zero byte`,
	} {
		_, err := New(address, Settings{})
		require.EqualError(t, err, want)
	}
}

func TestSettings(t *testing.T) {
	settings, err := Settings{}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, Settings{
		QuietDelay: 100 * time.Millisecond, MaxDelay: time.Second,
		RescanInterval: 30 * time.Second, EmptyGrace: 10 * time.Second, MaxFileBytes: 64 << 20,
	}, settings)
	settings, err = Settings{QuietDelay: 3 * time.Second}.withDefaults()
	require.NoError(t, err)
	require.Equal(t, 3*time.Second, settings.MaxDelay, "the default grows with the quiet delay")
	for want, bad := range map[string]Settings{
		`unknownFields: want "error" or "warn", got "ignore"`: {Texts: sources.Texts{UnknownFields: "ignore"}},
		`quietDelay: want at least 1ms, got -1s`:              {QuietDelay: -time.Second},
		`maxDelay: want at least 100ms, got 50ms`:             {MaxDelay: 50 * time.Millisecond},
		`rescanInterval: want at least 100ms, got 1ns`:        {RescanInterval: 1},
		`emptyGrace: want at least 100ms, got 1ms`:            {EmptyGrace: time.Millisecond},
		`maxFileBytes: want more than 0, got -1`:              {MaxFileBytes: -1},
	} {
		_, err := New("fs:///rules", bad)
		require.EqualError(t, err, want)
	}
}

func TestResolve(t *testing.T) {
	d, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	require.NoError(t, os.MkdirAll(filepath.Join(d, "v1/sub"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(d, "v1/sub/f"), nil, 0o600))
	for link, target := range map[string]string{
		"current": "v1", "abs": filepath.Join(d, "current", "sub"), "up": "v1/sub/../../current", "loop": "loop", "dangling": "v2/x",
	} {
		require.NoError(t, os.Symlink(target, filepath.Join(d, link)))
	}
	var above []anchor // the names on the way to d
	for directory := d; directory != "/"; directory = filepath.Dir(directory) {
		above = append([]anchor{{filepath.Dir(directory), filepath.Base(directory)}}, above...)
	}
	anchorsTo := func(paths string) []anchor {
		anchors := slices.Clone(above)
		for path := range strings.FieldsSeq(paths) {
			anchors = append(anchors, anchor{filepath.Join(d, filepath.Dir(path)), filepath.Base(path)})
		}
		return anchors
	}
	for _, c := range []struct {
		path, want string
		anchors    []anchor
		err        error
	}{
		{"v1/sub/f", "v1/sub/f", anchorsTo("v1 v1/sub v1/sub/f"), nil},
		{"current/sub/f", "v1/sub/f", anchorsTo("current v1 v1/sub v1/sub/f"), nil},
		{"abs/f", "v1/sub/f", anchorsTo("abs current v1 v1/sub v1/sub/f"), nil},
		{"up", "v1", anchorsTo("up v1 v1/sub current"), nil},
		{"dangling", "", anchorsTo("dangling v2"), fs.ErrNotExist},
		{"current/none/f", "", anchorsTo("current v1 v1/none"), fs.ErrNotExist},
		{"loop", "", nil, syscall.ELOOP},
	} {
		real, anchors, err := resolve(osDisk{}, filepath.Join(d, c.path))
		require.ErrorIs(t, err, c.err, c.path)
		if c.want != "" {
			require.Equal(t, filepath.Join(d, c.want), real, c.path)
		}
		if c.anchors != nil {
			require.Equal(t, c.anchors, anchors, c.path)
		}
	}
}

func TestCompare(t *testing.T) {
	for _, c := range []struct {
		name          string
		listed        string // a question mark: doubtful
		paths         string // a star: an event says that it changed
		files         string // seen; a star: with another stamp than before
		blocked       string
		read, missing string
	}{
		{"unchanged, changed, new, missing", "a b/c gone", ".", "a b/c* new", "", "b/c new", "gone"},
		{"only below the paths", "a b/c b/d bb b-", "b*", "b/d", "", "", "b/c"},
		{"an event says more than a stamp", "a d/b d/c", "a* d d/b*", "a d/b d/c", "", "a d/b", ""},
		{"a doubtful file is read", "a?", ".", "a", "", "a", ""},
		{"no file behind a blocked directory is missing", "a/b/c a/d e", ".", "", "a/b e", "", "a/d"},
		{"a file becomes a directory", "a.yaml", "a.yaml*", "a.yaml/b.yaml", "", "a.yaml/b.yaml", "a.yaml"},
	} {
		t.Run(c.name, func(t *testing.T) {
			var files btree.Map[string, fileState]
			for name := range strings.FieldsSeq(c.listed) {
				path, doubtful := strings.CutSuffix(name, "?")
				files.Set(path, fileState{stamp: stamp{size: 1}, doubtful: doubtful})
			}
			paths, seen := map[string]bool{}, sighting{files: map[string]stamp{}, blocked: map[string]error{}}
			for name := range strings.FieldsSeq(c.paths) {
				path, event := strings.CutSuffix(name, "*")
				paths[strings.TrimPrefix(path, ".")] = event
			}
			for name := range strings.FieldsSeq(c.files) {
				path, _ := strings.CutSuffix(name, "*")
				seen.files[path] = stamp{size: int64(1 + strings.Count(name, "*"))}
			}
			for name := range strings.FieldsSeq(c.blocked) {
				seen.blocked[name] = errors.New("x")
			}
			read, missing := compare(&files, paths, seen)
			require.ElementsMatch(t, strings.Fields(c.read), read)
			require.ElementsMatch(t, strings.Fields(c.missing), missing)
		})
	}
}

// TestComparePart_EqualsWhole checks that a comparison of some paths finds the same files below them as a comparison of
// the whole tree.
func TestComparePart_EqualsWhole(t *testing.T) {
	path := rapid.Map(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "b-", "bb"}), 1, 3), func(parts []string) string {
		return strings.Join(parts, "/")
	})
	rapid.Check(t, func(t *rapid.T) {
		var files btree.Map[string, fileState]
		for p, size := range rapid.MapOf(path, rapid.Int64Range(0, 1)).Draw(t, "known") {
			files.Set(p, fileState{stamp: stamp{size: size}})
		}
		now := make(map[string]stamp)
		for p, size := range rapid.MapOf(path, rapid.Int64Range(0, 1)).Draw(t, "files") {
			now[p] = stamp{size: size}
		}
		changed, removed := compare(&files, map[string]bool{"": false}, sighting{files: now})

		paths := make(map[string]bool)
		for _, p := range rapid.SliceOf(path).Draw(t, "paths") {
			paths[p] = false
		}
		part := make(map[string]stamp)
		for p, s := range now {
			if isCovered(paths, p) {
				part[p] = s
			}
		}
		read, missing := compare(&files, paths, sighting{files: part})
		below := func(list []string) (out []string) {
			for _, p := range list {
				if isCovered(paths, p) {
					out = append(out, p)
				}
			}
			return out
		}
		require.Equal(t, below(changed), read)
		require.Equal(t, below(removed), missing)
	})
}

func TestPatience(t *testing.T) {
	for size, want := range map[int64]time.Duration{0: time.Second, 4 << 20: 2 * time.Second, 64 << 20: 17 * time.Second} {
		require.Equal(t, want, patience(size, true))
		require.Equal(t, 10*want, patience(size, false))
	}
}

func TestGrace(t *testing.T) {
	var g grace
	second := func(string) time.Duration { return time.Second }
	start := time.Unix(1000, 0)
	expired, pending := g.judge([]string{"a", "b"}, start, second)
	require.Empty(t, expired)
	require.Equal(t, []string{"a", "b"}, pending)
	expired, pending = g.judge([]string{"a"}, start.Add(999*time.Millisecond), second)
	require.Empty(t, expired)
	require.Equal(t, []string{"a"}, pending)
	expired, pending = g.judge([]string{"a", "b"}, start.Add(time.Second), second)
	require.Equal(t, []string{"a"}, expired, "b was back in between")
	require.Equal(t, []string{"b"}, pending)
}
