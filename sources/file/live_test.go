package file

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"tributary/memstore"
	"tributary/resource"
	"tributary/sources"
	"tributary/sources/lastgood"
	"tributary/sources/sourcetest"
	"tributary/sources/transform"
)

func TestMain(m *testing.M) {
	if args := os.Getenv(tortured); args != "" {
		beTortured(args)
		return
	}
	goleak.VerifyTestMain(m)
}

// entry is a ServiceEntry as people write it.
func entry(name, host string) string {
	return fmt.Sprintf(`apiVersion: networking.istio.io/v1
kind: ServiceEntry
metadata:
  name: %s
spec:
  hosts: [%s]
  ports:
  - {number: 80, name: http, protocol: HTTP}
  location: MESH_EXTERNAL
  resolution: DNS
`, name, host)
}

func keyOf(name string) resource.Key {
	return resource.Key{Kind: resource.ServiceEntry, Namespace: "default", Name: name}
}

// live is a source in a running supervisor, over a disk with injected faults. Its rescans are an hour apart, so that
// changes arrive by events.
type live struct {
	*sourcetest.Running // once it runs

	t         *testing.T
	root      string
	disk      *testDisk
	table     *table
	memory    *lastgood.Store // or nil
	transform *transform.Rules
	parse     parser
	patience  time.Duration
	follow    bool // links that lead out of the root
}

// prepare makes a root with files, and a live that does not run yet. A file is its path and its entries: "a.yaml a=host".
func prepare(t *testing.T, files ...string) *live {
	root := filepath.Join(t.TempDir(), "rules")
	require.NoError(t, os.Mkdir(root, 0o700))
	l := &live{t: t, root: root, disk: &testDisk{}, table: &table{}}
	for _, file := range files {
		words := strings.Fields(file)
		l.write(words[0], words[1:]...)
	}
	return l
}

func (l *live) start() { l.startWith(Settings{}) }

func (l *live) startWith(settings Settings) {
	l.t.Helper()
	if settings.QuietDelay == 0 {
		settings.QuietDelay = 10 * time.Millisecond
	}
	if settings.RescanInterval == 0 {
		settings.RescanInterval = time.Hour
	}
	settings.FollowLinks = settings.FollowLinks || l.follow
	source, err := New("fs://"+l.root, settings)
	require.NoError(l.t, err)
	source.disk = l.disk
	if l.parse != nil {
		source.parse = l.parse
	}
	if l.patience != 0 {
		source.patience = func(int64, bool) time.Duration { return l.patience }
	}
	l.Running = sourcetest.Start(l.t, sources.Spec{
		Name: "rules", Source: source, Table: l.table, LastGood: l.memory, Transform: l.transform,
	})
}

// startSynced starts with settings; none are the usual ones.
func (l *live) startSynced(settings ...Settings) {
	l.t.Helper()
	l.startWith(append(settings, Settings{})[0])
	l.AwaitSync()
}

func (l *live) path(name string) string { return filepath.Join(l.root, filepath.FromSlash(name)) }

// shorthand is an entry and its host: "a=a.example.com".
var shorthand = regexp.MustCompile(`^[\w-]+=\S+$`)

// write writes a file of documents, or of entries in shorthand, as good programs do.
func (l *live) write(name string, documents ...string) {
	l.t.Helper()
	tmp := filepath.Join(filepath.Dir(name), ".tmp")
	l.overwrite(tmp, documents...)
	l.rename(tmp, name)
}

// overwrite writes a file in place.
func (l *live) overwrite(name string, documents ...string) {
	l.t.Helper()
	require.NoError(l.t, os.MkdirAll(filepath.Dir(l.path(name)), 0o700))
	for i, document := range documents {
		if shorthand.MatchString(document) {
			name, host, _ := strings.Cut(document, "=")
			documents[i] = entry(name, host)
		}
	}
	require.NoError(l.t, os.WriteFile(l.path(name), []byte(strings.Join(documents, "---\n")), 0o600))
}

// change writes a file with one entry, in shorthand, and waits for it.
func (l *live) change(name, document string) {
	l.t.Helper()
	l.write(name, document)
	object, host, _ := strings.Cut(document, "=")
	l.awaitHost(object, host)
}

// relink makes name a link to target, in one step.
func (l *live) relink(target, name string) {
	l.t.Helper()
	l.link(target, "next.tmp")
	l.rename("next.tmp", name)
}

func (l *live) chmod(name string, mode fs.FileMode) {
	l.t.Helper()
	require.NoError(l.t, os.Chmod(l.path(name), mode))
}

func (l *live) link(target, name string) {
	l.t.Helper()
	require.NoError(l.t, os.Symlink(target, l.path(name)))
}

func (l *live) rename(from, to string) {
	l.t.Helper()
	require.NoError(l.t, os.Rename(l.path(from), l.path(to)))
}

func (l *live) remove(name string) {
	l.t.Helper()
	require.NoError(l.t, os.RemoveAll(l.path(name)))
}

// awaitHost waits until the entry called name is for that host; none if empty.
func (l *live) awaitHost(name, host string) {
	l.t.Helper()
	l.Await(fmt.Sprintf("%s is %q", name, host), func() bool { return l.host(name) == host })
}

func (l *live) awaitQuarantined(n int) []sources.Quarantined {
	l.t.Helper()
	l.Await(fmt.Sprintf("%d are quarantined", n), func() bool { return len(l.Status().Quarantined) == n })
	return l.Status().Quarantined
}

// host returns the host of the entry with that name, or "".
func (l *live) host(name string) string {
	r := l.table.Snapshot().Get(keyOf(name))
	if r == nil {
		return ""
	}
	spec, err := r.Spec()
	require.NoError(l.t, err)
	return spec.(interface{ GetHosts() []string }).GetHosts()[0]
}

func (l *live) place(name string) string { return l.table.Snapshot().Get(keyOf(name)).Origin().Place }

// neverDeleted fails the test if one of the entries was ever missing.
func (l *live) neverDeleted(names ...string) {
	l.t.Helper()
	l.table.mu.Lock()
	defer l.table.mu.Unlock()
	for _, n := range names {
		require.NotContains(l.t, l.table.deleted, keyOf(n), "must never have been missing")
	}
}

// table records deleted keys.
type table struct {
	memstore.Table

	mu      sync.Mutex
	deleted []resource.Key
}

func (t *table) Apply(puts []*resource.Resource, deletes []resource.Key) ([]memstore.Change, memstore.Snapshot) {
	t.mu.Lock()
	t.deleted = append(t.deleted, deletes...)
	t.mu.Unlock()
	return t.Table.Apply(puts, deletes)
}

// testDisk is the real disk with injected faults. Tests may run as root, so permissions are not enough.
type testDisk struct {
	osDisk

	mu     sync.Mutex
	moved  string            // base name of a directory that reports another device
	errs   map[string]error  // by base name: error of opening or listing it
	before map[string]func() // by base name: called before it is opened
	during map[string]func() // by base name: called when it has been read
	opened map[string]int    // by base name
}

// set changes the injected faults.
func (d *testDisk) set(change func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	change()
}

func (d *testDisk) fail(name string, err error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.errs == nil {
		d.errs = make(map[string]error)
	}
	d.errs[name] = err
}

// plan has f called at the next openings of a file.
func (d *testDisk) plan(when *map[string]func(), name string, f func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if *when == nil {
		*when = make(map[string]func())
	}
	(*when)[name] = f
}

func (d *testDisk) opens(name string) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.opened[name]
}

// planned returns the injected error for a name.
func (d *testDisk) planned(name string) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.errs[filepath.Base(name)]; err != nil {
		return &fs.PathError{Op: "open", Path: name, Err: err}
	}
	return nil
}

func (d *testDisk) ReadDir(root, name string) ([]fs.DirEntry, error) {
	if err := d.planned(name); err != nil {
		return nil, err
	}
	return d.osDisk.ReadDir(root, name)
}

func (d *testDisk) Lstat(name string) (fs.FileInfo, error) {
	info, err := d.osDisk.Lstat(name)
	d.mu.Lock()
	defer d.mu.Unlock()
	if filepath.Base(name) != d.moved || err != nil {
		return info, err
	}
	st := *info.Sys().(*syscall.Stat_t)
	st.Dev++
	return movedInfo{info, &st}, nil
}

// movedInfo is about a file that is on another device than it really is.
type movedInfo struct {
	fs.FileInfo
	stat *syscall.Stat_t
}

func (i movedInfo) Sys() any { return i.stat }

func (d *testDisk) Open(root, name string) (fs.File, error) {
	base := filepath.Base(name)
	d.mu.Lock()
	if d.opened == nil {
		d.opened = make(map[string]int)
	}
	d.opened[base]++
	before, during := d.before[base], d.during[base]
	d.mu.Unlock()
	if before != nil {
		before()
	}
	if err := d.planned(name); err != nil {
		return nil, err
	}
	file, err := d.osDisk.Open(root, name)
	if err != nil || during == nil {
		return file, err
	}
	return &noisyFile{file, during}, nil
}

// noisyFile has something happen between its being read and the end.
type noisyFile struct {
	fs.File
	during func()
}

func (f *noisyFile) Read(p []byte) (int, error) {
	n, err := f.File.Read(p)
	if n > 0 {
		f.during()
	}
	return n, err
}
