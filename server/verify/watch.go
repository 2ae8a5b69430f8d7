package verify

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"

	corev3 "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/prometheus/client_golang/prometheus"
)

// settle is how long what is on its way may take: a finding is one that is still there then.
const settle = 5 * time.Second

// Report is what was found of an istiod or of an Envoy.
type Report struct {
	Istiod   string    `json:"istiod,omitempty"`
	Envoy    string    `json:"envoy,omitempty"`
	At       time.Time `json:"at,omitzero"` // of the last look that succeeded
	Objects  int       `json:"objects"`     // that were compared then
	Findings []Finding `json:"findings"`
	Error    string    `json:"error,omitempty"` // why the last look failed; what was found before it stands
}

// Count returns how many findings are of a class.
func (r Report) Count(class Class) (n int) {
	for _, f := range r.Findings {
		if f.Class == class {
			n++
		}
	}
	return n
}

// Peer is what is looked at.
type Peer interface {
	// Find returns what it does not have as it is served, and how much was compared.
	Find(ctx context.Context) ([]Finding, int, error)
	// name puts its address into a report.
	name(r *Report)
}

// IstiodPeer is an istiod, and what is served.
type IstiodPeer struct {
	Istiod
	Served func() Served // now
}

// Find implements Peer.
func (p *IstiodPeer) Find(ctx context.Context) ([]Finding, int, error) {
	stored, err := p.Stored(ctx)
	if err != nil {
		return nil, 0, err
	}
	served := p.Served()
	return Compare(served, stored), len(served.Objects), nil
}

func (p *IstiodPeer) name(r *Report) { r.Istiod = p.URL }

// EnvoyPeer is an Envoy, and what it is to be expected.
type EnvoyPeer struct {
	Envoy
	// Expected returns what an Envoy with this node should have now. delta says whether it uses delta xDS.
	Expected func(ctx context.Context, node *corev3.Node, delta bool) (*Expected, error)
}

// Find implements Peer.
func (p *EnvoyPeer) Find(ctx context.Context) ([]Finding, int, error) {
	dump, err := p.Dump(ctx)
	if err != nil {
		return nil, 0, err
	}
	expected, err := p.Expected(ctx, dump.Node, dump.Delta)
	if err != nil {
		return nil, 0, err
	}
	return CompareEnvoy(expected, dump)
}

func (p *EnvoyPeer) name(r *Report) { r.Envoy = p.Where }

// Watch verifies a peer again and again.
type Watch struct {
	Peer  Peer
	Every time.Duration
	Log   *slog.Logger

	mu     sync.Mutex
	report Report // without the name of the peer
}

// Report returns what was found.
func (w *Watch) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	r := w.report
	r.Findings = append([]Finding{}, r.Findings...)
	w.Peer.name(&r)
	return r
}

// Run looks again and again until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.Every)
	defer tick.Stop()
	for {
		w.look(ctx)
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// look looks, and if anything is not right, once more after a while.
func (w *Watch) look(ctx context.Context) {
	findings, objects, err := w.find(ctx)
	if err == nil && len(findings) > 0 {
		select {
		case <-ctx.Done():
			return
		case <-time.After(settle):
		}
		var again []Finding
		again, objects, err = w.find(ctx)
		findings = lasting(findings, again)
	}
	if ctx.Err() == nil {
		w.publish(findings, objects, err)
	}
}

func (w *Watch) find(ctx context.Context) ([]Finding, int, error) {
	ctx, cancel := context.WithTimeout(ctx, w.Every)
	defer cancel()
	return w.Peer.Find(ctx)
}

// lasting are the findings of now that were there before. An object that changes all the time may be behind each time.
func lasting(before, now []Finding) []Finding {
	was := make(map[Finding]bool, len(before))
	for _, f := range before {
		was[f] = true
	}
	all := []Finding{}
	for _, f := range now {
		if was[f] {
			all = append(all, f)
		}
	}
	return all
}

func (w *Watch) publish(findings []Finding, objects int, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	before := w.report
	var named Report
	w.Peer.name(&named)
	log := w.Log.With("istiod", named.Istiod, "envoy", named.Envoy)
	if err != nil {
		if w.report.Error = err.Error(); before.Error == "" {
			log.Warn("a client cannot be verified", "err", err)
		}
		return
	}
	w.report = Report{At: time.Now(), Objects: objects, Findings: findings}
	was, is := before.wrong(), w.report.wrong()
	switch {
	case is > 0 && is != was:
		log.Warn("a client does not have what is served", "findings", w.report.counts())
	case is == 0 && was > 0:
		log.Info("a client has what is served again")
	}
}

// counts are how many findings there are of each class that somebody should look at.
func (r Report) counts() string {
	var all []string
	for _, class := range Classes() {
		if n := r.Count(class); n > 0 && class != Extra {
			all = append(all, fmt.Sprintf("%d %s", n, class))
		}
	}
	return strings.Join(all, ", ")
}

// wrong is how many findings somebody should look at: what a peer has from elsewhere is not among them.
func (r Report) wrong() int { return len(r.Findings) - r.Count(Extra) }

// classes are those that there are of such a peer.
func (r Report) classes() []Class {
	if r.Envoy != "" {
		return Classes()
	}
	return []Class{Missing, Stale, Different, Extra}
}

var (
	findingsDesc = prometheus.NewDesc("tributary_verify_findings",
		"Objects that an istiod, or things that an Envoy, does not have as they are served, by class.", []string{"istiod", "envoy", "class"}, nil)
	verifiedDesc = prometheus.NewDesc("tributary_verify_last_success_timestamp_seconds",
		"When an istiod or Envoy was last compared with what is served.", []string{"istiod", "envoy"}, nil)
)

// Watches are all of them. It implements prometheus.Collector.
type Watches []*Watch

// Describe implements prometheus.Collector.
func (ws Watches) Describe(descs chan<- *prometheus.Desc) {
	descs <- findingsDesc
	descs <- verifiedDesc
}

// Collect implements prometheus.Collector. Of one that was never reached there is nothing. An empty label is to Prometheus as none.
func (ws Watches) Collect(metrics chan<- prometheus.Metric) {
	for _, w := range ws {
		r := w.Report()
		if r.At.IsZero() {
			continue
		}
		for _, class := range r.classes() {
			metrics <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(r.Count(class)), r.Istiod, r.Envoy, string(class))
		}
		metrics <- prometheus.MustNewConstMetric(verifiedDesc, prometheus.GaugeValue, float64(r.At.UnixMilli())/1000, r.Istiod, r.Envoy)
	}
}

// Reports returns what all found.
func (ws Watches) Reports() []Report {
	all := make([]Report, len(ws))
	for i, w := range ws {
		all[i] = w.Report()
	}
	return all
}

// Run runs all until ctx ends.
func (ws Watches) Run(ctx context.Context) error {
	var all sync.WaitGroup
	for _, w := range ws {
		all.Go(func() { _ = w.Run(ctx) })
	}
	all.Wait()
	return nil
}
