package check

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"tributary/config"
	"tributary/internal/relay"
	"tributary/internal/words"
	"tributary/server/transport"
)

// clock looks whether somebody sets the clock of the machine: certificates, tokens, and the times of the history depend on it.
func (d *Doctor) clock() {
	synchronized, known := clockSynchronized()
	switch {
	case !known:
		d.note(ofClock, Skipped, "this system does not tell whether its clock is set", "")
	case !synchronized:
		d.note(ofClock, Warning, fmt.Sprintf("no time-sync service found; the clock says %s", time.Now().UTC().Format(time.RFC3339)),
			"run chrony, ntpd or systemd-timesyncd: certificates and tokens are judged by the clock")
	default:
		d.note(ofClock, Fine, "it is kept right", "")
	}
}

// descriptors looks at how many files may be open.
func (d *Doctor) descriptors() {
	switch n := transport.Descriptors(); {
	case n >= 0 && n < relay.FewDescriptors:
		d.note(ofFiles, Warning, fmt.Sprintf("this user may have %d files open at once, which limits the clients", n),
			fmt.Sprintf("raise ulimit -n, or LimitNOFILE= of the service, to %d or more", relay.FewDescriptors))
	case n < 0:
		d.note(ofFiles, Fine, "there is no limit", "")
	default:
		d.note(ofFiles, Fine, fmt.Sprintf("%d at once", n), "")
	}
}

// watches looks whether the directories of sources of files can be watched.
func (d *Doctor) watches(cfg *config.Config) {
	directories := 0
	for _, s := range cfg.ConfigSources {
		if _, files := s.Settings.(*config.File); files {
			// what cannot be read is a finding of its source
			_ = filepath.WalkDir(strings.TrimPrefix(s.Address, "fs://"), func(_ string, e fs.DirEntry, err error) error {
				if err == nil && e.IsDir() {
					directories++
				}
				return nil //nolint:nilerr // the rest can be walked
			})
		}
	}
	if directories == 0 {
		return
	}
	limit, err := kernelNumber("/proc/sys/fs/inotify/max_user_watches")
	if err != nil {
		d.note(ofWatches, Skipped, "this system does not tell how much may be watched", "")
		return
	}
	said := fmt.Sprintf("%s of sources, of %d that a user may watch", words.Count(directories, "directory", "directories"), limit)
	if directories > limit/2 {
		d.note(ofWatches, Warning, said, fmt.Sprintf("sysctl fs.inotify.max_user_watches=%d: without a watch, changes are found by looking again",
			4*directories))
		return
	}
	d.note(ofWatches, Fine, said, "")
}

func kernelNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// leastFree is how much room on the disk is little, in bytes.
const leastFree = 256 << 20

// state looks whether the state directory can be used. It changes nothing there but for a file that comes and goes.
func (d *Doctor) state(cfg *config.Config) {
	path, _, err := relay.StatePath(cfg, relay.Origin{File: d.File})
	switch {
	case err != nil:
		d.note(ofState, Error, err.Error(), "name a directory with stateDir")
		return
	case path == "":
		d.note(ofState, Warning, "nothing is kept across restarts",
			"name a directory with stateDir: after a restart while a registry is down, nothing of it is served")
		return
	}
	existing, where := path, ""
	if path == cfg.StateDir {
		where = cfg.At("stateDir") + ": "
	}
	for {
		info, err := os.Stat(existing)
		if err == nil && !info.IsDir() {
			d.note(ofState, Error, where+existing+" is not a directory", "name another one with stateDir")
			return
		}
		if err == nil {
			break
		}
		parent := filepath.Dir(existing)
		if !errors.Is(err, fs.ErrNotExist) || parent == existing {
			d.note(ofState, Error, where+err.Error(), "give it to the user who runs tributary, or name another one with stateDir")
			return
		}
		existing = parent
	}
	probe, err := os.CreateTemp(existing, ".tributary-doctor-*")
	if err != nil {
		d.note(ofState, Error, fmt.Sprintf("%s%s: this user cannot write there: %v", where, path, err),
			"give it to the user who runs tributary, or run doctor as that one")
		return
	}
	if err := errors.Join(probe.Close(), os.Remove(probe.Name())); err != nil {
		d.note(ofState, Error, err.Error(), "see the disk")
		return
	}
	if free, known := freeBytes(existing); known && free < leastFree {
		d.note(ofState, Warning, fmt.Sprintf("%s: %d MiB are free on the disk", path, free>>20),
			"make room: what cannot be stored is served, and lost by a restart")
		return
	}
	d.note(ofState, Fine, path+" can be written", "")
}
