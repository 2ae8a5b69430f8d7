package xds

import (
	"hash/maphash"
	"slices"
)

// fingerprint identifies a set of names and versions: the sum of a hash of each, as clients encode it in
// initial_resource_versions. A client that resumes with the fingerprint of a state has that state, and none of its versions is looked up.
// No client knows the seed, so two sets have the same fingerprint once in 2^64 times.
type fingerprint struct {
	count int
	sum   uint64
}

var fingerprintSeed = maphash.MakeSeed()

// brought returns the fingerprint with one more encoded entry.
func (f fingerprint) brought(entry []byte) fingerprint {
	return fingerprint{f.count + 1, f.sum + maphash.Bytes(fingerprintSeed, entry)}
}

func (f fingerprint) add(e *Entry) fingerprint {
	return f.brought(appendMapEntry(make([]byte, 0, 128), e.Name, e.Version))
}

func (f fingerprint) remove(e *Entry) fingerprint {
	one := fingerprint{}.add(e)
	return fingerprint{f.count - one.count, f.sum - one.sum}
}

// history is what the latest commits replaced, the oldest first. Those of the states of a collection share memory.
type history []past

// past is a commit: the fingerprint of the state before it, and what it replaced there.
type past struct {
	print    fingerprint
	replaced []replaced
}

// replaced is a name with the version that it had, which is empty if it was new.
type replaced struct{ name, version string }

// A history has at most maxHistory commits, of at most maxReplaced names each.
const maxHistory, maxReplaced = 64, 100

// with returns the history after one more commit.
func (h history) with(print fingerprint, was []replaced) history {
	if len(was) > maxReplaced {
		return nil
	}
	if len(h) == 2*maxHistory {
		h = append(make(history, 0, 2*maxHistory), h[maxHistory:]...)
	}
	return append(h, past{print, was})
}

// replacedSince returns what was replaced since the state with a fingerprint, with the versions of that state, and whether that is known.
func (s *state) replacedSince(print fingerprint) (had map[string]string, ok bool) {
	if s.print == print {
		return nil, true
	}
	for i, before := range slices.Backward(s.earlier) {
		if before.print != print {
			continue
		}
		had = make(map[string]string)
		for _, p := range s.earlier[i:] {
			for _, r := range p.replaced {
				if _, known := had[r.name]; !known {
					had[r.name] = r.version
				}
			}
		}
		return had, true
	}
	return nil, false
}
