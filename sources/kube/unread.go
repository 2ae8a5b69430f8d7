package kube

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"tributary/sources"
)

// A server that starts does not list its CRDs for a moment. So confirmLooks looks in a row have to find that a kind of policies is missing
// before the cluster counts as one without it, the first time. The first pause between two is confirmPause; each further one is twice as
// long.
const (
	confirmLooks = 5
	confirmPause = time.Second
)

// countMissing counts the looks that found a kind missing. run.mu is held.
func (r *run) countMissing(now time.Time, versions map[*kind]string) {
	for _, k := range r.kinds {
		switch {
		case versions[k] != "":
			k.missing = 0
		case k.missing < confirmLooks && now.Sub(k.missed) >= r.confirmAfter(k.missing):
			k.missing, k.missed = k.missing+1, now
		}
	}
	for _, s := range r.streams {
		s.Confirmed = s.policies && versions[s.kind] == "" && (s.Confirmed || s.missing == confirmLooks)
	}
}

// confirmAfter is the pause after so many looks that found a kind missing.
func (r *run) confirmAfter(looks int) time.Duration {
	if looks == 0 {
		return 0
	}
	return min(r.lookEvery, confirmPause<<(looks-1))
}

// pause is how long discovery waits for the next look.
func (r *run) pause() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	pause := r.lookEvery
	for _, s := range r.streams {
		if s.isUnread() && s.missing > 0 {
			pause = min(pause, r.confirmAfter(s.missing))
		}
	}
	return pause
}

// isUnread reports whether the stream is of policies of which it was never known which there are. run.mu is held.
func (s *stream) isUnread() bool { return s.policies && !s.whole && s.Seen == 0 && !s.Confirmed }

// whyUnread says why the policies of a stream were never read, and what to do.
func (s *stream) whyUnread() string {
	text := fmt.Sprintf("%s %s were never read, so Envoys refuse all requests", s.shown, s.where())
	switch {
	case refused(s.err).Code == http.StatusForbidden:
		return text + ": " + lack([]string{s.where()}) + "; grant it, or set kinds without them"
	case s.err != nil:
		return fmt.Sprintf("%s: %v", text, s.err)
	case s.missing > 0:
		return fmt.Sprintf("%s: /apis does not list the kind, look %d of %d", text, s.missing, confirmLooks)
	}
	return text
}

// tellUnread tells the sink which policies were never read. run.mu is held.
func (r *run) tellUnread() {
	sink, ok := r.sink.(sources.PolicyReader)
	if !ok {
		return
	}
	why := make(map[string][]string)
	for _, s := range r.streams {
		if s.isUnread() {
			why[s.namespace] = append(why[s.namespace], s.whyUnread())
		}
	}
	texts := make(map[string]string)
	for namespace, each := range why {
		texts[namespace] = strings.Join(each, "; ")
	}
	sink.UnreadPolicies(texts)
}
