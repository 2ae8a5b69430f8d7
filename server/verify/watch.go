package verify

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// settle is how long what is on its way may take: a finding is one that is still there then.
const settle = 5 * time.Second

// Report is what was found of an istiod.
type Report struct {
	Istiod   string    `json:"istiod"`
	At       time.Time `json:"at,omitzero"` // of the last look that succeeded
	Objects  int       `json:"objects"`     // that were served then
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

// Options of a Watch.
type Options struct {
	Istiod Istiod
	Every  time.Duration
	Served func() Served // what is served now
	Log    *slog.Logger
}

// Watch verifies an istiod again and again.
type Watch struct {
	opts Options

	mu     sync.Mutex
	report Report
}

// NewWatch returns a watch that has not looked yet.
func NewWatch(opts Options) *Watch {
	return &Watch{opts: opts, report: Report{Istiod: opts.Istiod.URL, Findings: []Finding{}}}
}

// Report returns what was found.
func (w *Watch) Report() Report {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.report
}

// Run looks again and again until ctx ends.
func (w *Watch) Run(ctx context.Context) error {
	tick := time.NewTicker(w.opts.Every)
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
	ctx, cancel := context.WithTimeout(ctx, w.opts.Every)
	defer cancel()
	stored, err := w.opts.Istiod.Stored(ctx)
	if err != nil {
		return nil, 0, err
	}
	served := w.opts.Served()
	return Compare(served, stored), len(served.Objects), nil
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
	if err != nil {
		if w.report.Error = err.Error(); before.Error == "" {
			w.opts.Log.Warn("istiod cannot be verified", "istiod", w.opts.Istiod.URL, "err", err)
		}
		return
	}
	w.report = Report{Istiod: before.Istiod, At: time.Now(), Objects: objects, Findings: append([]Finding{}, findings...)}
	was, is := before.wrong(), w.report.wrong()
	switch {
	case is > 0 && is != was:
		w.opts.Log.Warn("istiod does not have what is served", "istiod", w.opts.Istiod.URL,
			"missing", w.report.Count(Missing), "stale", w.report.Count(Stale), "different", w.report.Count(Different))
	case is == 0 && was > 0:
		w.opts.Log.Info("istiod has what is served again", "istiod", w.opts.Istiod.URL)
	}
}

// wrong is how many findings somebody should look at: what an istiod has from elsewhere is not among them.
func (r Report) wrong() int { return len(r.Findings) - r.Count(Extra) }

var (
	findingsDesc = prometheus.NewDesc("tributary_verify_findings",
		"Objects that an istiod does not have as they are served, by class.", []string{"istiod", "class"}, nil)
	verifiedDesc = prometheus.NewDesc("tributary_verify_last_success_timestamp_seconds",
		"When an istiod was last compared with what is served.", []string{"istiod"}, nil)
)

// Watches are all of them. It implements prometheus.Collector.
type Watches []*Watch

// Describe implements prometheus.Collector.
func (ws Watches) Describe(descs chan<- *prometheus.Desc) {
	descs <- findingsDesc
	descs <- verifiedDesc
}

// Collect implements prometheus.Collector. Of an istiod that was never reached there is nothing.
func (ws Watches) Collect(metrics chan<- prometheus.Metric) {
	for _, w := range ws {
		r := w.Report()
		if r.At.IsZero() {
			continue
		}
		for _, class := range []Class{Missing, Stale, Different, Extra} {
			metrics <- prometheus.MustNewConstMetric(findingsDesc, prometheus.GaugeValue, float64(r.Count(class)), r.Istiod, string(class))
		}
		metrics <- prometheus.MustNewConstMetric(verifiedDesc, prometheus.GaugeValue, float64(r.At.UnixMilli())/1000, r.Istiod)
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
