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
func (x *torture) change() {
	x.n++
	p, q := x.path(), x.path()
	ops := []struct {
		name  string
		often int
		do    func()
	}{
		{"write " + p, 8, func() { x.write(p, x.text()) }},
		{"overwrite " + p, 4, func() { _ = os.WriteFile(p, []byte(x.text()), 0o644) }},
		{"write in two " + p, 2, func() {
			text := x.text()
			_ = os.WriteFile(p, []byte(text[:len(text)/2]), 0o644)
			time.Sleep(time.Duration(x.random.IntN(20)) * time.Millisecond)
			_ = os.WriteFile(p, []byte(text), 0o644)
		}},
		{"truncate " + p, 2, func() { _ = os.Truncate(p, 0) }},
		{"break " + p, 3, func() { x.write(p, x.text()+"---\n"+brokenYAML+"# "+brokenMark+"\n") }},
		{"hostile " + p, 3, func() { x.write(p, x.text()+"# "+brokenMark+"\n---\n"+hostile[x.random.IntN(len(hostile))]) }},
		{"blank " + p, 2, func() { _ = os.WriteFile(p, []byte("---\n# nothing\n"), 0o644) }}, //nolint:gosec // the program may be nobody
		{"foreign " + p, 2, func() { x.write(p, "apiVersion: v1\nkind: Service\nmetadata: {name: n1}\n---\n"+x.text()) }},
		{"remove " + p, 4, func() { _ = os.RemoveAll(p) }},
		{"rename " + p + " to " + q, 6, func() { _ = os.Rename(p, q) }},
		{"swap " + p + " and " + q, 3, func() { x.swap(p, q) }},
		{"swap directories", 3, func() { x.swap(x.dir(), x.dir()) }},
		{"link " + p + " to " + q, 3, func() { x.link(q, p) }},
		{"link a directory outside", 3, func() { x.link(filepath.Join(x.base, "out", "d"), x.dir()) }},
		{"link " + p + " outside", 3, func() { x.link(x.outside(), p) }},
		{"link " + p + " to nowhere", 1, func() { x.link("nowhere", p) }},
		{"link " + p + " to itself", 1, func() { x.link(filepath.Base(p), p) }},
		{"link a directory to its own", 2, func() { x.link(".", x.dir()) }},
		{"write outside", 3, func() { x.write(x.outside(), x.text()) }},
		{"remove outside", 1, func() { _ = os.RemoveAll(x.outside()) }},
		{"mount another version", 3, x.mount},
		{"swap a directory above", 1, x.swapAbove},
		{"deny " + p, 2, func() { x.chmod(p, 0) }},
		{"allow all", 2, x.allow},
		{"kill", 3, func() { x.kill(); x.start() }},
		{"kill and change", 2, func() { x.kill(); x.write(p, x.text()); _ = os.Rename(x.path(), q); x.start() }},
		{"start without state", 1, x.startWithoutState},
		{"break everything and start without state", 1, func() { x.breakAll(); x.startWithoutState() }},
		{"repair", 1, func() { x.repair(); x.checkAll() }},
	}
	sum := 0
	for _, op := range ops {
		sum += op.often
	}
	for draw := x.random.IntN(sum); ; {
		for _, op := range ops {
			if draw -= op.often; draw < 0 {
				x.log = append(x.log, op.name)
				op.do()
				return
			}
		}
	}
}

// path is one of the few that there are.
func (x *torture) path() string {
	names := []string{"a", "b", "c"}
	parts := []string{x.root}
	for range x.random.IntN(3) {
		parts = append(parts, names[x.random.IntN(len(names))])
	}
	if x.random.IntN(5) > 0 {
		parts = append(parts, names[x.random.IntN(len(names))]+".yaml")
	} else {
		parts = append(parts, names[x.random.IntN(len(names))])
	}
	return filepath.Join(parts...)
}

func (x *torture) dir() string {
	return filepath.Join(x.root, string(rune('a'+x.random.IntN(3))))
}

func (x *torture) outside() string {
	return filepath.Join(x.base, "out", []string{"a", "b", "d/a.yaml", "d", "d/e/b.yaml"}[x.random.IntN(5)])
}

// text is a file of a few objects, of few names, none twice, each for a host of its own.
func (x *torture) text() string {
	var docs []string
	for _, i := range x.random.Perm(6)[:1+x.random.IntN(3)] {
		docs = append(docs, entry(fmt.Sprint("n", i), fmt.Sprintf("h%d-%d.example.com", x.n, i)))
	}
	return strings.Join(docs, "---\n")
}

// write writes a file as good programs do.
func (x *torture) write(p, text string) {
	_ = os.MkdirAll(filepath.Dir(p), 0o755) //nolint:gosec // the program may be nobody
	tmp := filepath.Join(filepath.Dir(p), ".tmp")
	if os.WriteFile(tmp, []byte(text), 0o644) == nil { //nolint:gosec // as above
		_ = os.Rename(tmp, p)
	}
}

func (x *torture) swap(p, q string) {
	tmp := filepath.Join(x.base, "swapping")
	if os.Rename(p, tmp) != nil {
		return
	}
	_ = os.Rename(q, p)
	if os.Rename(tmp, q) != nil {
		_ = os.RemoveAll(tmp)
	}
}

func (x *torture) link(to, p string) {
	tmp := filepath.Join(x.base, "linking")
	_ = os.Remove(tmp)
	if os.Symlink(to, tmp) == nil && os.Rename(tmp, p) != nil {
		_ = os.RemoveAll(p) // a directory
		_ = os.Rename(tmp, p)
	}
}

// mount changes a ConfigMap as Kubernetes does.
func (x *torture) mount() {
	m := filepath.Join(x.root, "m")
	version := fmt.Sprintf("..v%d", x.n)
	x.write(filepath.Join(m, version, "a.yaml"), x.text())
	old, _ := os.Readlink(filepath.Join(m, "..data"))
	x.link(version, filepath.Join(m, "..data"))
	x.link("..data/a.yaml", filepath.Join(m, "a.yaml"))
	if old != "" {
		_ = os.RemoveAll(filepath.Join(m, old))
	}
}

// swapAbove puts another directory in the place of one above the root.
func (x *torture) swapAbove() {
	directory := filepath.Join(x.base, []string{"up", "up/mid"}[x.random.IntN(2)])
	rest, err := filepath.Rel(directory, x.root)
	must(err)
	x.write(filepath.Join(directory+".next", rest, "a.yaml"), x.text())
	if err := os.Rename(directory, directory+".old"); err == nil {
		_ = os.Rename(directory+".next", directory)
	}
	_ = os.RemoveAll(directory + ".old")
}

func (x *torture) chmod(p string, mode fs.FileMode) {
	if fi, err := os.Lstat(p); err == nil && fi.Mode()&fs.ModeSymlink == 0 {
		_ = os.Chmod(p, mode)
	}
}

// allow gives all permissions back.
func (x *torture) allow() {
	for range 5 { // unreadable directories were not walked, unless we are root, and are at most this deep
		_ = filepath.WalkDir(x.root, func(p string, e fs.DirEntry, _ error) error {
			switch {
			case e == nil:
			case e.IsDir():
				x.chmod(p, 0o755)
			default:
				x.chmod(p, 0o644)
			}
			return nil
		})
	}
}

// startWithoutState kills the program, starts it without its state, and waits until its synced status is right.
func (x *torture) startWithoutState() {
	x.t.Helper()
	x.kill()
	state := filepath.Join(x.base, "state")
	entries, err := os.ReadDir(state)
	require.NoError(x.t, err)
	for _, e := range entries {
		require.NoError(x.t, os.RemoveAll(filepath.Join(state, e.Name())))
	}
	x.start()
	x.awaitTree(func(o *oracle, _ map[string]served) error {
		st := x.status()
		if want, certain := o.counts(); st.State == sources.Starting.String() || certain && st.Synced != want {
			return fmt.Errorf("it is %s, and synced is %t: %s", st.State, st.Synced, st.Message)
		}
		return nil
	})
}

// breakAll leaves no valid object in any file.
func (x *torture) breakAll() {
	for p := range ask(x.root).files {
		_ = os.WriteFile(filepath.Join(x.root, p), []byte(brokenYAML+"# "+brokenMark+"\n"), 0o644) //nolint:gosec // the program may be nobody
	}
}

// repair restores permissions, removes dangling links, and replaces broken files.
func (x *torture) repair() {
	x.allow()
	for range 100 {
		oracle := ask(x.root)
		if len(oracle.unsound) == 0 {
			return
		}
		for _, p := range oracle.unsound {
			path := filepath.Join(x.root, p) // it may lie behind a link, where allow does not go
			switch fi, err := os.Stat(path); {
			case err == nil && fi.IsDir():
				_ = os.Chmod(path, 0o755) //nolint:gosec // the program may be nobody
			case err == nil && strings.HasSuffix(p, ".yaml"):
				_ = os.Chmod(path, 0o644)                       //nolint:gosec // as above
				_ = os.WriteFile(path, []byte(x.text()), 0o644) //nolint:gosec // as above
			default:
				_ = os.RemoveAll(path)
			}
		}
	}
	require.Fail(x.t, "the tree cannot be repaired", "%v", ask(x.root).unsound)
}
