package xds

import (
	"cmp"
	"time"
)

// Pacing spaces out the responses of state-of-the-world types in full, each of which is everything again. The first change
// goes at once. The next waits until Least has passed, or ten times what the client took to acknowledge the last response,
// but by no more than Most: so a client spends a tenth of its time on what we send. Answers to requests do not wait.
// A client that was introduced to something (Type.Introduce) is left with it for Least before it is led elsewhere again.
type Pacing struct {
	Least time.Duration // one second if zero; negative for no pacing
	Most  time.Duration // ten seconds if zero
}

const pacingShare = 10 // one part in so many of a client's time

func (p *Pacing) setDefaults() {
	p.Least = cmp.Or(p.Least, time.Second)
	p.Most = max(cmp.Or(p.Most, 10*time.Second), p.Least)
}

// pace is what a subscription knows of its client's pace.
type pace struct {
	changed time.Time     // when a change was last sent; zero if none was
	led     time.Time     // when the client was last sent what it had been introduced to; zero if it never was
	took    time.Duration // from sending the last response that was acknowledged until then
}

// sending notes that the client, which has h, is sent a response.
func (p *pace) sending(h *holding, now time.Time) {
	if !h.asked() {
		p.changed = now
	}
}

// wait returns how long the next change has to wait, or zero.
func (p *pace) wait(now time.Time, pacing Pacing) time.Duration {
	if p.changed.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.changed.Add(min(max(pacingShare*p.took, pacing.Least), pacing.Most)).Sub(now), 0)
}

// settle returns how long the client is to be left with what it was introduced to, or zero: of two moves at once it would be
// told when it has not begun with the first, and could do neither in order.
func (p *pace) settle(now time.Time, pacing Pacing) time.Duration {
	if p.led.IsZero() || pacing.Least < 0 {
		return 0
	}
	return max(p.led.Add(pacing.Least).Sub(now), 0)
}
