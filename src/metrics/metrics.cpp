#include "metrics/metrics.h"
#include <map>
#include <mutex>
#include <memory>
namespace torch_xla::metrics {
struct M : Metric { MetricData d; std::mutex m; void add(double s) override { std::lock_guard l(m); d.count++; d.total+=s; } };
static std::mutex mu; static std::map<std::string,std::unique_ptr<Counter>> cs; static std::map<std::string,std::unique_ptr<M>> ms;
Counter& counter(const std::string& n){ std::lock_guard l(mu); auto& c=cs[n]; if(!c) c=std::make_unique<Counter>(); return *c;}
Metric& metric(const std::string& n, Unit){ std::lock_guard l(mu); auto& c=ms[n]; if(!c) c=std::make_unique<M>(); return *c;}
std::vector<std::string> counter_names(){ std::vector<std::string> r; for(auto&[k,v]:cs) if(v->value()) r.push_back(k); return r;}
std::vector<std::string> metric_names(){ std::vector<std::string> r; for(auto&[k,v]:ms) if(v->d.count) r.push_back(k); return r;}
int64_t counter_value(const std::string& n, bool* f){ auto i=cs.find(n); if(f)*f=i!=cs.end(); return i==cs.end()?0:i->second->value();}
MetricData metric_data(const std::string& n, bool* f){ auto i=ms.find(n); if(f)*f=i!=ms.end(); return i==ms.end()?MetricData{}:i->second->d;}
void clear_counters(){ for(auto&[k,v]:cs) v->clear(); } void clear_metrics(){ for(auto&[k,v]:ms){ v->d={}; } }
std::string report(bool){ std::string r; for(auto&[k,v]:cs) r+=k+" "+std::to_string(v->value())+"\n"; for(auto&[k,v]:ms) r+=k+" n="+std::to_string(v->d.count)+" total_ms="+std::to_string(v->d.total/1e6)+"\n"; return r;}
std::string short_report(const std::vector<std::string>&, const std::vector<std::string>&){ return report(); }
}
