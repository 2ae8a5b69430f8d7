package envoy

import (
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"tributary/internal/turns"
	"tributary/server/xds"
)

// What a client rejects is traced back to the object that causes it. Of the objects that changed lately and have a part in what was rejected, all are set
// aside in a scope that just this client sees; when it is content with that, they are put back in order, and who comes last to what the client takes and
// makes it reject the whole is set aside for all. The word of a client is believed as far as nobody contradicts it:
//
//   - What another client accepted as it is, is no fault of an object; nor is it that of an object of which another one accepted something of the
//     same sort, made of it as it is.
//   - What nobody else is told counts for clients of the same profile only.
//   - What a machine lacks (a port that is taken, a file that is missing) is no fault of an object either.
//   - A client that is not content with what was there before, or takes too long, is not heard for a while, nor is anybody at its address.
//   - Who is at one address can bring no more than a few objects into quarantine.
//
// gRPC clients are not heard: what they reject, Envoys may well accept.

const (
	defaultHearing  = time.Second      // see Options.Hearing
	hearingPatience = 30 * time.Second // for a whole hearing: longer than pacing and the acknowledgement timeout
	patient         = 6                // a client that is gone after more than such a part of that is not believed either
	youth           = 3 * time.Second  // for how long a hearing holds up others
	maxYoung        = 4                // hearings
	maxHearings     = 16
	lookAgain       = time.Second // at a client that has not said yet, if it says nothing
	lookSeldom      = 16 * time.Second
	disbelief       = 10 * time.Minute
	// Nobody is heard for longer than a part of the time: who was heard rests for so many times as long as it took, or as long if he was right.
	restOfOthers   = 9
	restOfRight    = 1
	maxRejected    = 100 // resources of one complaint: who rejects more and does not say which has nothing to say
	maxSuspects    = 64
	maxDisbelieved = 10_000
	maxResting     = 1000 // addresses at which nobody complains any more
)

// Witnesses are the clients, as a server of the catalog knows them.
type Witnesses interface {
	Audience() xds.Audience
	Opinion(streamID uint64, c *xds.Collection, all []xds.Resource) (o xds.Opinion, why string)
	Complaint(streamID uint64, typeURL string) (xds.Complaint, xds.Opinion)
	Sees(by func(streamID uint64, c *xds.Collection, wants func(name string) bool) bool) bool
	Review()
	ReviewOf(streamID uint64)
}

// judge knows who may have something to complain of, who is heard, and who is not believed. It is safe for concurrent use.
type judge struct {
	patience time.Duration
	quiet    atomic.Bool   // nobody's consent is of interest
	bell     chan struct{} // rung when something may be due

	thinking *turns.Turns // taken by who looks for suspects, one after the other: that is work, and not more than one processor is for it

	mu          sync.Mutex
	witnesses   Witnesses // or nil
	docket      docket
	hearings    map[uint64]*seat     // by stream
	disbelieved map[string]time.Time // by address, until when
}

// seat is that of a client that is heard.
type seat struct {
	host     string
	of       reach
	since    time.Time
	old      bool          // it does not hold up others any more
	answered chan struct{} // rung when the client has answered, or is gone
}

func newJudge(hearing, patience time.Duration) *judge {
	j := &judge{
		patience: patience, thinking: turns.New(1), bell: make(chan struct{}, 1), docket: newDocket(hearing), hearings: make(map[uint64]*seat), disbelieved: make(map[string]time.Time),
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
	if s := j.hearings[a.StreamID]; s != nil {
		s.ring()
	}
	if j.docket.take(complainant{a.StreamID, a.TypeURL}, a.Host, a.Error != "", time.Now()) {
		j.quiet.Store(false)
		j.ring()
	}
}

// leave notes that a client does not see any more what it saw of a type.
func (j *judge) leave(stream uint64, typeURL string) {
	if j.quiet.Load() {
		return
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.docket.leave(complainant{stream, typeURL}, time.Now()) {
		j.ring()
	}
}

// ring says that something may be due.
func (j *judge) ring() { ring(j.bell) }

func (s *seat) ring() { ring(s.answered) }

func ring(bell chan<- struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}

// due returns the complaints that are to be looked at.
func (j *judge) due(now time.Time) []look {
	j.mu.Lock()
	defer j.mu.Unlock()
	for _, s := range j.hearings {
		if age := now.Sub(s.since); age >= youth && !s.old {
			s.old = true
			j.docket.free()
		}
	}
	return j.docket.due(now)
}

// wait returns after what time something is due, if nothing is said until then.
func (j *judge) wait(now time.Time) time.Duration {
	j.mu.Lock()
	defer j.mu.Unlock()
	wait := j.docket.wait(now)
	for _, s := range j.hearings { // which do not hold up others for ever
		if !s.old {
			wait = min(wait, max(youth-now.Sub(s.since), 0))
		}
	}
	return wait
}

// think waits until a client at an address may look for suspects, which ends with thought.
func (j *judge) think(host string) {
	if turn := j.thinking.Queue(host); turn != nil {
		<-turn // it comes: who thinks gives way
	}
}

func (j *judge) thought() { j.thinking.Leave() }

// giveWay lets those at other addresses think who wait for that.
func (j *judge) giveWay(host string) {
	j.thought()
	j.think(host)
}

// found notes what was found of a complaint that is not heard.
func (j *judge) found(l look, o xds.Opinion, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.docket.found(l, o == xds.Undecided, now)
	j.quiet.Store(j.docket.isEmpty())
}

// begin gives a client a seat, unless others are to be heard before: who just got one in the same profile; or too many. Nobody has one at the same address.
func (j *judge) begin(l look, host string, of reach, now time.Time) *seat {
	j.mu.Lock()
	defer j.mu.Unlock()
	young, waits := 0, len(j.hearings) >= maxHearings
	for _, s := range j.hearings {
		if !s.old {
			young++
		}
		waits = waits || !s.old && s.of == of || young == maxYoung
	}
	if waits {
		j.docket.hold(l)
		return nil
	}
	s := &seat{host: host, of: of, since: now, answered: make(chan struct{}, 1)}
	j.hearings[l.stream] = s
	j.docket.begin(l)
	return s
}

// done takes the seat back, and notes what came of the hearing.
func (j *judge) done(l look, r result, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rest := restOfOthers * now.Sub(j.hearings[l.stream].since)
	if r.ended == endedQuarantined || r.ended == endedAgain {
		rest = restOfRight * now.Sub(j.hearings[l.stream].since)
	}
	delete(j.hearings, l.stream)
	j.docket.done(l, r, rest, now)
	j.ring()
}

// believes says whether the clients at an address are heard, and if not, when they will be again.
func (j *judge) believes(host string, now time.Time) (bool, time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	until := j.disbelieved[host]
	return !now.Before(until), until
}

func (j *judge) disbelieve(host string, now time.Time) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.disbelieved) >= maxDisbelieved {
		for h, until := range j.disbelieved {
			if now.After(until) {
				delete(j.disbelieved, h)
			}
		}
	}
	for len(j.disbelieved) >= maxDisbelieved { // whose time is over first
		var first string
		for h, until := range j.disbelieved {
			if first == "" || until.Before(j.disbelieved[first]) {
				first = h
			}
		}
		delete(j.disbelieved, first)
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
