#include "base/spare_hands.h"

#include "base/mutex.h"

#include <atomic>
#include <vector>

namespace torch_xla {

namespace {

class Offers {
 public:
  static Offers& instance() {
    static auto* offers = new Offers;
    return *offers;
  }

  // Whoever offers looks for hands afterwards, and a hand that goes looks for offers afterwards:
  // one of them sees the other.
  size_t add(const std::shared_ptr<SharedWork>& work) {
    {
      MutexLock lock(mutex_);
      offered_.push_back(work);
      count_.store(offered_.size());
    }
    return hands_.load();
  }

  void remove(const std::shared_ptr<SharedWork>& work) {
    MutexLock lock(mutex_);
    std::erase(offered_, work);
    count_.store(offered_.size());
  }

  std::shared_ptr<SharedWork> latest() {
    if (count_.load() == 0) {
      return nullptr;
    }
    MutexLock lock(mutex_);
    return offered_.empty() ? nullptr : offered_.back();
  }

  void come() { hands_.fetch_add(1); }
  void go() { hands_.fetch_sub(1); }

 private:
  Mutex mutex_;
  std::vector<std::shared_ptr<SharedWork>> offered_ GUARDED_BY(mutex_);
  std::atomic<size_t> count_{0}, hands_{0};
};

bool take_part(const std::shared_ptr<SharedWork>& work) {
  const bool any = work->work();
  Offers::instance().remove(work);  // it has no piece left
  return any;
}

}  // namespace

SpareHand::SpareHand() { Offers::instance().come(); }

SpareHand::~SpareHand() {
  Offers::instance().go();
  while (const std::shared_ptr<SharedWork> work = Offers::instance().latest()) {
    take_part(work);
  }
}

bool SpareHand::help() {
  while (const std::shared_ptr<SharedWork> work = Offers::instance().latest()) {
    Offers::instance().go();  // who works is not to be counted on
    const bool any = take_part(work);
    Offers::instance().come();
    if (any) {
      return true;
    }
  }
  return false;
}

Offer::Offer(std::shared_ptr<SharedWork> work)
    : work_(std::move(work)), hands_(Offers::instance().add(work_)) {}

Offer::~Offer() { Offers::instance().remove(work_); }

}  // namespace torch_xla
