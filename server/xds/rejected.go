package xds

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"
)

// Rejection is a resource that a client rejects, and that the client's last rejected response had.
type Rejection struct {
	Name     string // empty if the resources of the rejected response are not known any more
	Version  string // that the client was sent
	Acked    string // the version sent before, which the client may have left unacknowledged for AckTimeout; empty if none
	Revision uint64 // the Commit.Revision that the client last acknowledged before the rejection; zero if none
	Error    string // the client's reason, which may be cut
	Since    time.Time
	// Fallback describes the entry that the client gets instead, by Type.Fallback; empty if it keeps its entry.
	Fallback string
	// UnenforcedSince is the time when the client first rejected a required resource, without an accepted fallback since
	// then; zero otherwise.
	UnenforcedSince time.Time

	held     *Entry // by the client
	unknown  bool   // the client may hold the resource with unknown content
	rejected *Entry
	instead  *Entry // the fallback for rejected, or nil
}

// maxRejections is how many rejections are kept for one type on one stream.
const maxRejections = 100

// maxReasons is how many bytes are kept of the client's earlier reasons for one type on one stream.
const maxReasons = 8 << 10

// answers has the client's answers to the responses of a type. Only Type.Fallback makes responses depend on them.
type answers struct {
	revision uint64      // of the state that the client last acknowledged
	before   clientState // the client before the last response; empty once that is answered
	sent     []*Entry    // new or newer in the last response, in order of name; nil once that is answered
	ends     []int       // of each of its chunks in sent, if there are several
	rejected map[string]*Rejection

	fallbackState, fallbackGoal *state // the last result and argument of subscription.withFallbacks
}

// sentWith returns the entries that are new or newer in the chunk of a nonce, which is one of the last response.
func (s *subscription) sentWith(nonce uint64) []*Entry {
	sent, ends := s.answers.sent, s.answers.ends
	i := nonce - s.firstNonce
	if i >= uint64(len(ends)) {
		return sent
	}
	from := 0
	if i > 0 {
		from = min(ends[i-1], len(sent))
	}
	return sent[from:min(ends[i], len(sent))]
}

// begin notes a response to a client, in chunks.
func (a *answers) begin(client *clientState, p *responsePlan, chunks []*body, v variant) {
	before := clientState{state: client.state, removed: client.removed, notHeld: client.notHeld}
	a.before = before
	a.sent = p.changed()
	a.ends = nil
	if len(chunks) == 1 || v.aliases { // aliases are among the entries, and chunks do not match
		return
	}
	end := 0
	for _, b := range chunks {
		end += b.count
		a.ends = append(a.ends, end)
	}
}

// forgetResponse forgets the response, after its answer.
func (a *answers) forgetResponse() {
	a.before = clientState{}
	a.sent = nil
	a.ends = nil
}

// isTruncated reports whether a reason may lack names of rejected resources. Envoy cuts a reason after 4,096 bytes.
func isTruncated(reason string) bool {
	return len(reason) >= 4096 || strings.HasSuffix(reason, "(truncated)")
}

// reject notes that the client rejects entries. If its whole reason mentions some of them, only those count.
func (s *subscription) reject(entries []*Entry, reason string, now time.Time) {
	named := slices.DeleteFunc(slices.Clone(entries), func(e *Entry) bool { return !mentions(reason, e.Name) })
	if len(named) > 0 && !isTruncated(reason) {
		entries = named
	}
	if len(entries) == 0 { // it rejects an earlier response, or one without resources
		entries = []*Entry{{}}
	}
	answers := &s.answers
	reason = cmp.Or(reason, "no reason given")
	for _, entry := range entries {
		rejection := answers.rejected[entry.Name]
		if rejection == nil {
			rejection = &Rejection{Name: entry.Name, Revision: answers.revision, Since: now}
			if answers.before.state != nil {
				rejection.Acked, _ = answers.before.heldVersion(entry.Name)
				rejection.held = answers.before.get(entry.Name)
			}
		}
		s.fallBack(rejection, entry, now)
		if rejected := s.coll.typ.Rejected; rejected != nil && entry.Name != "" {
			rejected(entry)
		}
		if answers.rejected[entry.Name] == nil {
			if len(answers.rejected) >= maxRejections && rejection.instead == nil {
				continue
			}
			put(&answers.rejected, entry.Name, rejection)
		}
		rejection.Error = reason
	}
	for _, r := range answers.rejected {
		if most := maxReasons / len(answers.rejected); r.Error != reason && len(r.Error) > most {
			r.Error = strings.ToValidUTF8(r.Error[:most-len("…")], "") + "…"
		}
	}
}

// accept notes that the client accepts the chunk of a nonce, which is one of the last response.
func (s *subscription) accept(nonce uint64) {
	answers := &s.answers
	isLast := nonce == s.lastNonce && !s.rejected
	if isLast {
		answers.revision = s.client.state.commitRevision
	}
	if len(answers.rejected) == 0 || !isLast && len(answers.ends) == 0 {
		return
	}
	for _, entry := range s.sentWith(nonce) {
		if r := answers.rejected[entry.Name]; r == nil || r.instead != entry {
			delete(answers.rejected, entry.Name)
		} else {
			r.held = entry
			r.unknown = false
			r.UnenforcedSince = time.Time{}
		}
	}
	maps.DeleteFunc(answers.rejected, func(name string, r *Rejection) bool {
		held := s.client.state.get(name)
		return isLast && (held == nil || s.inFull(&s.selection) && held != r.instead)
	})
	answers.fallbackGoal = nil
}

// rejections returns the resources that the client wants and rejects, in order of name.
func (s *subscription) rejections() (rejections []Rejection) {
	for name, r := range s.answers.rejected {
		if name == "" || s.selection.includes(name) {
			rejections = append(rejections, *r)
		}
	}
	slices.SortFunc(rejections, func(a, b Rejection) int { return cmp.Compare(a.Name, b.Name) })
	return rejections
}

// mentions reports whether a text has a name on its own, and not as a part of another name. A number never counts as a
// name, since it may stand for any quantity.
func mentions(text, name string) bool {
	if strings.Trim(name, "0123456789") == "" {
		return false
	}
	for {
		before, after, exists := strings.Cut(text, name)
		if !exists {
			return false
		}
		rest := strings.TrimLeft(after, ":.,") // of the sentence
		if !isOfName(before, len(before)-1) && (!isOfName(after, 0) || rest == "" || rest[0] == ' ') {
			return true
		}
		text = after
	}
}

func isOfName(text string, i int) bool {
	if i < 0 || i >= len(text) {
		return false
	}
	c := text[i]
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte("|.:-_~*/", c) >= 0
}
