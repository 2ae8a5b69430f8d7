package envoy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tributary/server/xds"
)

// What a client rejects is traced back to the object that causes it. Of the objects that changed lately and have a part in what was rejected, all
// are set aside; when the client is content with that, half of them are put back, and so on, until it is known which it rejects: those stay in
// quarantine. The word of a client is believed as far as nobody contradicts it:
//
//   - What another client accepted as it is, is no fault of an object; nor is it that of an object of which another one accepted something of the
//     same name, as it is told of it.
//   - What a machine lacks (a port that is taken, a file that is missing) is no fault of an object either.
//   - A client that is not content with what was there before, or does not answer, is not heard for a while, nor is anybody at its address.
//   - Who is at one address can bring no more than a few objects into quarantine.
//
// gRPC clients are not heard: what they reject, Envoys may well accept.

const (
	defaultHearing  = time.Second      // see Options.Hearing
	answerPatience  = 30 * time.Second // for a client that is asked what it thinks: longer than pacing and the acknowledgement timeout
	disbelief       = 10 * time.Minute
	maxComplaints   = 1000 // that wait to be heard
	maxRejected     = 100  // resources of one complaint: who rejects more and does not say which has nothing to say
	maxSuspects     = 64
	maxQuarantined  = 100
	maxOfComplainer = 10 // by the word of one address
	maxDisbelieved  = 1000
)

// Witnesses are the clients, as a server of the catalog knows them.
type Witnesses interface {
	Accepted(r xds.Resource, by func(streamID uint64, c *xds.Collection) bool) bool
	Opinion(streamID uint64, c *xds.Collection, all []xds.Resource) xds.Opinion
	Rejected(streamID uint64, c *xds.Collection) []xds.Resource
	Review()
}

// complainant is one type on one stream.
type complainant struct {
	stream  uint64
	typeURL string
}

// complaint is that a client rejects something.
type complaint struct {
	*xds.AnswerInfo
	due time.Time // when it is heard: others have had time to answer
}

// judge gathers what clients say. It is safe for concurrent use.
type judge struct {
	hearing  time.Duration
	quiet    atomic.Bool   // nobody's consent is of interest
	bell     chan struct{} // rung when there is a complaint to be heard
	answered chan struct{} // rung when the client answers that is heard

	mu         sync.Mutex
	witnesses  Witnesses // or nil
	complaints map[complainant]complaint
	asked      *xds.AnswerInfo // the last answer of the client that is heard, or nil

	disbelieved map[string]time.Time // by address, until when; owned by the one who hears
}

func newJudge(hearing time.Duration) *judge {
	j := &judge{
		hearing: hearing, bell: make(chan struct{}, 1), answered: make(chan struct{}, 1),
		complaints: make(map[complainant]complaint), disbelieved: make(map[string]time.Time),
	}
	j.quiet.Store(true)
	return j
}

// HearOf makes w those who are asked whether they accepted what another client rejects, and who are told when what clients are told is another collection.
func (c *Catalog) HearOf(w Witnesses) {
	c.judge.mu.Lock()
	defer c.judge.mu.Unlock()
	c.judge.witnesses = w
}

// witnesses returns those who are asked, or nil.
func (c *Catalog) witnesses() Witnesses {
	c.judge.mu.Lock()
	defer c.judge.mu.Unlock()
	return c.judge.witnesses
}

// Answered is to be called with all that clients say, as the hook of an xds.Server. It does not wait.
func (c *Catalog) Answered(_ context.Context, a *xds.AnswerInfo) {
	if a.Error != "" || !c.judge.quiet.Load() {
		c.judge.take(a)
	}
}

func (j *judge) take(a *xds.AnswerInfo) {
	switch a.TypeURL {
	case xds.ClusterURL, xds.EndpointURL, xds.ListenerURL, xds.RouteURL, xds.VHostURL:
	default:
		return // secrets are what a machine has
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	who := complainant{a.StreamID, a.TypeURL}
	switch {
	case j.asked != nil && who == complainant{j.asked.StreamID, j.asked.TypeURL}:
		j.asked = a
		select {
		case j.answered <- struct{}{}:
		default:
		}
		return
	case a.Error != "":
		j.file(a)
	} // what is accepted may be something else: when a complaint is heard, it is asked what is still rejected
	j.quiet.Store(len(j.complaints) == 0 && j.asked == nil)
}

// file puts a complaint among those that are to be heard; j.mu is held.
func (j *judge) file(a *xds.AnswerInfo) {
	if len(j.complaints) >= maxComplaints {
		return
	}
	j.complaints[complainant{a.StreamID, a.TypeURL}] = complaint{a, time.Now().Add(j.hearing)}
	select {
	case j.bell <- struct{}{}:
	default:
	}
}

// next takes away the complaint that is due first, if it is due, and returns it. Else it says after what time to look again; zero is if the bell rings.
func (j *judge) next(now time.Time) (due *xds.AnswerInfo, wait time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	var first complaint
	for _, c := range j.complaints {
		if first.AnswerInfo == nil || c.due.Before(first.due) {
			first = c
		}
	}
	if first.AnswerInfo == nil {
		return nil, 0
	}
	if wait = first.due.Sub(now); wait > 0 {
		return nil, wait
	}
	delete(j.complaints, complainant{first.StreamID, first.TypeURL})
	j.quiet.Store(len(j.complaints) == 0 && j.asked == nil)
	return first.AnswerInfo, 0
}

// ask has what a client says until done be of the hearing of its complaint. If that is to be held again, it is if the client still complains.
func (j *judge) ask(a *xds.AnswerInfo) (done func(again bool)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.asked = a
	j.quiet.Store(false)
	return func(again bool) {
		j.mu.Lock()
		defer j.mu.Unlock()
		if again && j.asked.Error != "" {
			j.file(j.asked)
		}
		j.asked = nil
		j.quiet.Store(len(j.complaints) == 0)
	}
}

// said returns the last answer of the client that is heard.
func (j *judge) said() *xds.AnswerInfo {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.asked
}

// believes says whether the clients at an address are heard.
func (j *judge) believes(host string, now time.Time) bool {
	return !now.Before(j.disbelieved[host])
}

func (j *judge) disbelieve(host string, now time.Time) {
	if len(j.disbelieved) >= maxDisbelieved {
		for h, until := range j.disbelieved {
			if now.After(until) {
				delete(j.disbelieved, h)
			}
		}
	}
	if len(j.disbelieved) >= maxDisbelieved {
		clear(j.disbelieved)
	}
	j.disbelieved[host] = now.Add(disbelief)
}

// ofTheMachine says whether the reason of a rejection is one of the machine on which the client runs.
func ofTheMachine(why string) bool {
	why = strings.ToLower(why)
	return slices.ContainsFunc([]string{
		"cannot bind", "address already in use", "permission denied", "cannot assign requested address", "invalid path", "does not exist", "unable to read",
	}, func(sign string) bool { return strings.Contains(why, sign) })
}

// named returns those of the resources that the reason of a rejection names, or all if it names none. A number names nothing: it could be any.
func named(all []xds.Resource, why string) (some []xds.Resource, isNamed bool) {
	for _, r := range all {
		if strings.Trim(r.Name, "0123456789") != "" && mentions(why, r.Name) {
			some = append(some, r)
		}
	}
	if len(some) == 0 {
		return all, false
	}
	return some, true
}

// mentions says whether a name stands in a text as such, and not as a part of another one.
func mentions(text, name string) bool {
	for {
		before, after, found := strings.Cut(text, name)
		if !found {
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
	return i >= 0 && i < len(text) && (text[i] >= 'a' && text[i] <= 'z' || text[i] >= 'A' && text[i] <= 'Z' || text[i] >= '0' && text[i] <= '9' || strings.IndexByte("|.:-_~*/", text[i]) >= 0)
}
