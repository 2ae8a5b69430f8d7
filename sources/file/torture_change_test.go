package file

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"tributary/sources"
)

// hostile are texts that have killed one program or another.
var hostile = []string{
	"&a\napiVersion: v1\nkind: List\nitems:\n- *a\n",
	"a: &a [x,x]\nb: &b [*a,*a,*a,*a,*a,*a,*a,*a]\nc: &c [*b,*b,*b,*b,*b,*b,*b,*b]\nd: &d [*c,*c,*c,*c,*c,*c,*c,*c]\ne: [*d,*d,*d,*d,*d]\n",
	strings.Repeat("[", 20_000), strings.Repeat("{a: ", 5_000), "\x00\x01\xff\xfe", "\xef\xbb\xbf---\n\t- x\n",
	"%YAML 9.9\n--- !!binary |\n x\n",
	"apiVersion: networking.istio.io/v1\nkind: ServiceEntry\nmetadata: {name: ", "- - - - ? : |\n", strings.Repeat("? ", 3_000),
}

// change changes the tree or restarts the program. Impossible operations are skipped.
func (t *torture) change() {
	t.n++
	p, q := t.path(), t.path()
	ops := []struct {
		name  string
		often int
		do    func()
	}{
		{"write " + p, 8, func() { t.write(p, t.text()) }},
		{"overwrite " + p, 4, func() { _ = os.WriteFile(p, []byte(t.text()), 0o644) }},
		{"write in two " + p, 2, func() {
			text := t.text()
			_ = os.WriteFile(p, []byte(text[:len(text)/2]), 0o644)
			time.Sleep(time.Duration(t.random.IntN(20)) * time.Millisecond)
			_ = os.WriteFile(p, []byte(text), 0o644)
		}},
		{"truncate " + p, 2, func() { _ = os.Truncate(p, 0) }},
		{"break " + p, 3, func() { t.write(p, t.text()+"---\n"+brokenYAML+"# "+brokenMark+"\n") }},
		{"hostile " + p, 3, func() { t.write(p, t.text()+"# "+brokenMark+"\n---\n"+hostile[t.random.IntN(len(hostile))]) }},
		{"blank " + p, 2, func() { _ = os.WriteFile(p, []byte("---\n# nothing\n"), 0o644) }}, //nolint:gosec // the program may be nobody
		{"foreign " + p, 2, func() { t.write(p, "apiVersion: v1\nkind: Service\nmetadata: {name: n1}\n---\n"+t.text()) }},
		{"remove " + p, 4, func() { _ = os.RemoveAll(p) }},
		{"rename " + p + " to " + q, 6, func() { _ = os.Rename(p, q) }},
		{"swap " + p + " and " + q, 3, func() { t.swap(p, q) }},
		{"swap directories", 3, func() { t.swap(t.dir(), t.dir()) }},
		{"link " + p + " to " + q, 3, func() { t.link(q, p) }},
		{"link a directory outside", 3, func() { t.link(filepath.Join(t.base, "out", "d"), t.dir()) }},
		{"link " + p + " outside", 3, func() { t.link(t.outside(), p) }},
		{"link " + p + " to nowhere", 1, func() { t.link("nowhere", p) }},
		{"link " + p + " to itself", 1, func() { t.link(filepath.Base(p), p) }},
		{"link a directory to its own", 2, func() { t.link(".", t.dir()) }},
		{"write outside", 3, func() { t.write(t.outside(), t.text()) }},
		{"remove outside", 1, func() { _ = os.RemoveAll(t.outside()) }},
		{"mount another version", 3, t.mount},
		{"swap a directory above", 1, t.swapAbove},
		{"deny " + p, 2, func() { t.chmod(p, 0) }},
		{"allow all", 2, t.allow},
		{"kill", 3, func() { t.kill(); t.start() }},
		{"kill and change", 2, func() { t.kill(); t.write(p, t.text()); _ = os.Rename(t.path(), q); t.start() }},
		{"start without state", 1, t.startWithoutState},
		{"break everything and start without state", 1, func() { t.breakAll(); t.startWithoutState() }},
		{"repair", 1, func() { t.repair(); t.checkAll() }},
	}
	sum := 0
	for _, op := range ops {
		sum += op.often
	}
	for draw := t.random.IntN(sum); ; {
		for _, op := range ops {
			if draw -= op.often; draw < 0 {
				t.log = append(t.log, op.name)
				op.do()
				return
			}
		}
	}
}

// path is one of the few that there are.
func (t *torture) path() string {
	names := []string{"a", "b", "c"}
	parts := []string{t.root}
	for range t.random.IntN(3) {
		parts = append(parts, names[t.random.IntN(len(names))])
	}
	if t.random.IntN(5) > 0 {
		parts = append(parts, names[t.random.IntN(len(names))]+".yaml")
	} else {
		parts = append(parts, names[t.random.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (t *torture) dir() string {
	return filepath.Join(t.root, string(rune('a'+t.random.IntN(3))))
}

func (t *torture) outside() string {
	return filepath.Join(t.base, "out", []string{"a", "b", "d/a.yaml", "d", "d/e/b.yaml"}[t.random.IntN(5)])
}

// text is a file of a few objects, of few names, none twice, each for a host of its own.
func (t *torture) text() string {
	var docs []string
	for _, i := range t.random.Perm(6)[:1+t.random.IntN(3)] {
		docs = append(docs, entry(fmt.Sprint("n", i), fmt.Sprintf("h%d-%d.example.com", t.n, i)))
	}
	return strings.Join(docs, "---\n")
}

// write writes a file as good programs do.
func (t *torture) write(p, text string) {
	_ = os.MkdirAll(filepath.Dir(p), 0o755) //nolint:gosec // the program may be nobody
	tmp := filepath.Join(filepath.Dir(p), ".tmp")
	if os.WriteFile(tmp, []byte(text), 0o644) == nil { //nolint:gosec // as above
		_ = os.Rename(tmp, p)
	}
}

func (t *torture) swap(p, q string) {
	tmp := filepath.Join(t.base, "swapping")
	if os.Rename(p, tmp) != nil {
		return
	}
	_ = os.Rename(q, p)
	if os.Rename(tmp, q) != nil {
		_ = os.RemoveAll(tmp)
	}
}

func (t *torture) link(to, p string) {
	tmp := filepath.Join(t.base, "linking")
	_ = os.Remove(tmp)
	if os.Symlink(to, tmp) == nil && os.Rename(tmp, p) != nil {
		_ = os.RemoveAll(p) // a directory
		_ = os.Rename(tmp, p)
	}
}

// mount changes a ConfigMap as Kubernetes does.
func (t *torture) mount() {
	m := filepath.Join(t.root, "m")
	version := fmt.Sprintf("..v%d", t.n)
	t.write(filepath.Join(m, version, "a.yaml"), t.text())
	old, _ := os.Readlink(filepath.Join(m, "..data"))
	t.link(version, filepath.Join(m, "..data"))
	t.link("..data/a.yaml", filepath.Join(m, "a.yaml"))
	if old != "" {
		_ = os.RemoveAll(filepath.Join(m, old))
	}
}

// swapAbove puts another directory in the place of one above the root.
func (t *torture) swapAbove() {
	directory := filepath.Join(t.base, []string{"up", "up/mid"}[t.random.IntN(2)])
	rest, err := filepath.Rel(directory, t.root)
	must(err)
	t.write(filepath.Join(directory+".next", rest, "a.yaml"), t.text())
	if err := os.Rename(directory, directory+".old"); err == nil {
		_ = os.Rename(directory+".next", directory)
	}
	_ = os.RemoveAll(directory + ".old")
}

func (t *torture) chmod(p string, mode fs.FileMode) {
	if fi, err := os.Lstat(p); err == nil && fi.Mode()&fs.ModeSymlink == 0 {
		_ = os.Chmod(p, mode)
	}
}

// allow gives all permissions back.
func (t *torture) allow() {
	for range 5 { // unreadable directories were not walked, unless we are root, and are at most this deep
		_ = filepath.WalkDir(t.root, func(p string, e fs.DirEntry, _ error) error {
			switch {
			case e == nil:
			case e.IsDir():
				t.chmod(p, 0o755)
			default:
				t.chmod(p, 0o644)
			}
			return nil
		})
	}
}

// startWithoutState kills the program, starts it without its state, and waits until its synced status is right.
func (t *torture) startWithoutState() {
	t.t.Helper()
	t.kill()
	state := filepath.Join(t.base, "state")
	entries, err := os.ReadDir(state)
	require.NoError(t.t, err)
	for _, e := range entries {
		require.NoError(t.t, os.RemoveAll(filepath.Join(state, e.Name())))
	}
	t.start()
	t.awaitTree(func(o *oracle, _ map[string]served) error {
		st := t.status()
		if want, certain := o.counts(); st.State == sources.Starting.String() || certain && st.Synced != want {
			return fmt.Errorf("it is %s, and synced is %t: %s", st.State, st.Synced, st.Message)
		}
		return nil
	})
}

// breakAll leaves no valid object in any file.
func (t *torture) breakAll() {
	for p := range ask(t.root).files {
		_ = os.WriteFile(filepath.Join(t.root, p), []byte(brokenYAML+"# "+brokenMark+"\n"), 0o644) //nolint:gosec // the program may be nobody
	}
}

// repair restores permissions, removes dangling links, and replaces broken files.
func (t *torture) repair() {
	t.allow()
	for range 100 {
		oracle := ask(t.root)
		if len(oracle.unsound) == 0 {
			return
		}
		for _, p := range oracle.unsound {
			path := filepath.Join(t.root, p) // it may lie behind a link, where allow does not go
			switch fi, err := os.Stat(path); {
			case err == nil && fi.IsDir():
				_ = os.Chmod(path, 0o755) //nolint:gosec // the program may be nobody
			case err == nil && strings.HasSuffix(p, ".yaml"):
				_ = os.Chmod(path, 0o644)                       //nolint:gosec // as above
				_ = os.WriteFile(path, []byte(t.text()), 0o644) //nolint:gosec // as above
			default:
				_ = os.RemoveAll(path)
			}
		}
	}
	require.Fail(t.t, "the tree cannot be repaired", "%v", ask(t.root).unsound)
}
