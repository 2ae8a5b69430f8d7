package kube

import (
	"fmt"
	"net/http"
	"strings"
	"time"

	"tributary/sources"
)

// confirmMissing notes the kinds of policies that the server does not list: a server that starts does not list its CRDs
// for a moment. So a kind has to be missing for confirmTime before the cluster counts as one without it, the first
// time. run.mu is held.
func (r *run) confirmMissing(now time.Time, versions map[*kind]string) {
	for _, s := range r.streams {
		s.Confirmed = s.policies && versions[s.kind] == "" && (s.Confirmed || now.Sub(r.missing[s.kind]) >= r.confirmTime())
	}
}

// confirmTime is the time that a kind without any known object has to be missing.
func (r *run) confirmTime() time.Duration { return min(r.lookEvery/2, 15*time.Second) }

// isUnread reports whether the stream is of policies that were never read. run.mu is held.
func (s *stream) isUnread() bool { return s.policies && !s.isListed && s.Seen == 0 && !s.Confirmed }

// whyUnread returns the reason why the policies of a stream were never read, and the remedy.
func (s *stream) whyUnread() string {
	text := fmt.Sprintf("%s %s were never read, so Envoys refuse all requests", s.shown, s.where())
	switch {
	case refused(s.err).Code == http.StatusForbidden:
		return text + ": " + missingRights([]string{s.where()}) + "; grant it, or set kinds without them"
	case s.err != nil:
		return fmt.Sprintf("%s: %v", text, s.err)
	case !s.missing[s.kind].IsZero():
		return fmt.Sprintf("%s: /apis does not list the kind. From %s UTC on, the cluster counts as one without it", text,
			s.missing[s.kind].Add(s.confirmTime()).UTC().Format(time.TimeOnly))
	}
	return text
}

// tellUnread tells the sink the policies that were never read. run.mu is held.
func (r *run) tellUnread() {
	sink, ok := r.sink.(sources.PolicyReader)
	if !ok {
		return
	}
	reasons := make(map[string][]string)
	for _, s := range r.streams {
		if s.isUnread() {
			reasons[s.namespace] = append(reasons[s.namespace], s.whyUnread())
		}
	}
	texts := make(map[string]string)
	for namespace, each := range reasons {
		texts[namespace] = strings.Join(each, "; ")
	}
	sink.UnreadPolicies(texts)
}
