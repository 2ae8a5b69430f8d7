package xds

import (
	"cmp"
	"time"
)

// Pacing spaces out full state-of-the-world responses, which repeat all resources. The first change is sent at once.
// The next waits for Least, or for ten times as long as the client took to acknowledge the last response, but no longer
// than Most: so a client spends a tenth of its time on responses. Answers to requests do not wait. After a preannounced
// change (Type.Preannounce), the next change of the type waits for Least.
type Pacing struct {
	Least time.Duration // one second if zero; negative for no pacing
	Most  time.Duration // ten seconds if zero
}

const pacingShare = 10 // a client spends one pacingShare-th of its time on responses

func (p *Pacing) setDefaults() {
	p.Least = cmp.Or(p.Least, time.Second)
	p.Most = max(cmp.Or(p.Most, 10*time.Second), p.Least)
}

// pace has the speed of the client of a subscription, and the times of the last changes that it was sent.
type pace struct {
	changed          time.Time     // when a change was last sent; zero if never
	lastPreannounced time.Time     // when a change that was preannounced was last sent; zero if never
	ackTime          time.Duration // from sending the last acknowledged response until its acknowledgement
}

// begin notes that a response to the client, which has h, begins.
func (p *pace) begin(h *clientState, now time.Time) {
	if !h.answersRequest() {
		p.changed = now
	}
}

// wait returns how long the next change has to wait, or zero.
func (p *pace) wait(now time.Time, pacing Pacing) time.Duration {
	if p.changed.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.changed.Add(min(max(pacingShare*p.ackTime, pacing.Least), pacing.Most)).Sub(now), 0)
}

// preannounceWait returns how long the change after a preannounced one has to wait, or zero. Without a wait, the client
// might get it before it uses the first change, and could apply neither in order.
func (p *pace) preannounceWait(now time.Time, pacing Pacing) time.Duration {
	if p.lastPreannounced.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.lastPreannounced.Add(pacing.Least).Sub(now), 0)
}
